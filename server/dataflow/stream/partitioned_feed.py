"""Feeds of the rows with one key each: one pass over the changes of a relation serves all subscribed keys.

    changes -> hashes of the key columns -> rows of subscribed keys, sorted by key -> one entry per changed key

A step costs O(changes + changed keys that are subscribed), not O(subscribed keys). All keys share one `upper`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import Timestamp
from protocol.columnar.hashing import Hashes, key_hashes
from server.dataflow.stream.feed import Entry, Feed, FeedGroup
from server.dataflow.stream.selection import Selection, Shape
from server.runtime.errors import to_pg_error

THREAD_ROWS = 8_192  # from this number of rows on changes are divided in a thread
RECENT_MAX = 64  # selections that are not indexed yet; each costs a pass over the changes of a step

Parts = list[tuple[Feed, Timestamp, pa.Table]]


class _Index:
    """Selections by the hashes of their values, ascending. Immutable."""

    def __init__(self, shape: Shape, feeds: Mapping[Selection, Feed]) -> None:
        self._names = shape.names
        values = zip(*(selection.values for selection in feeds), strict=True)
        columns = [pa.array(column, column[0].type) for column in values]
        rows = pa.table(columns or [pa.array([], pa.int64()) for _ in self._names], names=self._names)
        hashes = key_hashes(rows, self._names)
        order = np.argsort(hashes, kind="stable")
        self._hashes: Hashes = hashes[order]
        self._rows = rows.take(pa.array(order))
        known = [*feeds.values()]
        self._feeds = [known[place] for place in order]

    def __len__(self) -> int:
        return len(self._feeds)

    def divided(self, changes: pa.Table) -> Iterator[tuple[Feed, pa.Table]]:
        """The changes of each selection that has any. Values with the same hash are distinguished by comparing them."""
        hashes = key_hashes(changes, self._names)
        first, last = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        counts = last - first  # the number of selections with the row's hash: nearly always 0 or 1
        rows = np.repeat(np.arange(len(hashes)), counts)
        if len(rows) == 0:
            return
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(first, counts) + offsets
        order = np.argsort(places, kind="stable")
        rows, places = rows[order], places[order]
        found, wanted = changes.take(pa.array(rows)), self._rows.take(pa.array(places))
        equal = np.ones(len(rows), np.bool_)
        for name in self._names:
            equal &= np.asarray(pc.fill_null(pc.equal(found[name], wanted[name]), False))
        if not equal.all():
            found, places = found.filter(pa.array(equal)), places[equal]
        bounds = np.flatnonzero(np.diff(places, prepend=-1, append=len(self._feeds)))
        for start, end in pairwise(bounds.tolist()):
            yield self._feeds[places[start]], found.slice(start, end - start)


class PartitionedFeed:
    """The feeds of the selections of one shape from a relation. Starts its own task.

    `abandoned` is called when the last reader of the last feed has left.
    """

    def __init__(self, source: Feed, shape: Shape) -> None:
        """`source`: the feed of the relation."""
        self.group = FeedGroup(source.upper)
        self._source = source
        self._shape = shape
        self.abandoned: Callable[[], None] | None = None
        self._reader = source.join()
        self._feeds: dict[Selection, Feed] = {}
        self._recent: dict[Selection, Feed] = {}  # those that are not in `_index`, which may have abandoned feeds
        self._index = _Index(shape, {})
        self._task = asyncio.create_task(self._run())

    def feed(self, selection: Selection) -> Feed:
        """The feed of a selection of this shape. A new feed begins at the group's `upper`. The caller joins it."""
        feed = self._feeds.get(selection)
        if feed is None:
            feed = self._feeds[selection] = self._recent[selection] = Feed(
                self.group.upper, self._source.directory, self.group
            )
            feed.abandoned = partial(self._remove, selection)
        return feed

    def _remove(self, selection: Selection) -> None:
        del self._feeds[selection]
        self._recent.pop(selection, None)
        if not self._feeds:
            self._task.cancel()
            self._reader.close()
            if self.abandoned is not None:
                self.abandoned()

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return sum(feed.buffered_bytes for feed in self._feeds.values())

    async def _run(self) -> None:
        """Divides the source's entries, until the source fails or the last feed is abandoned."""
        source = self._source
        try:
            while True:
                if not self._reader.is_at_end or source.upper > self.group.upper:
                    await self._step()
                elif source.failure is not None:
                    return self.group.fail(source.failure)
                else:
                    await source.moved.wait()
        except Exception as error:
            self.group.fail(to_pg_error(error))

    async def _step(self) -> None:
        """Appends the source's new entries to the feeds and advances their `upper`."""
        entries, upper = self._reader.untaken(), self._source.upper
        if entries:
            if len(self._recent) > RECENT_MAX or len(self._index) > 2 * len(self._feeds) + RECENT_MAX:
                self._index, self._recent = _Index(self._shape, self._feeds), {}
            recent = dict(self._recent)
            if sum(entry.changes.num_rows for entry in entries) < THREAD_ROWS:
                parts = self._divided(entries, recent)
            else:
                parts = await asyncio.to_thread(self._divided, entries, recent)
            added = {selection: feed for selection, feed in self._recent.items() if recent.get(selection) is not feed}
            parts += self._selected(entries, added)  # meanwhile
            self._reader.take(count=len(entries))
            for feed, time, changes in parts:
                feed.append(time, changes)
        self.group.advance(upper)

    def _divided(self, entries: list[Entry], recent: Mapping[Selection, Feed]) -> Parts:
        """The changes of each feed by time."""
        found: Parts = []
        for time, entries_then in groupby(entries, lambda entry: entry.time):
            by_feed: dict[Feed, list[pa.Table]] = {}
            for entry in entries_then:
                for feed, changes in self._index.divided(entry.changes):
                    by_feed.setdefault(feed, []).append(changes)
            found += ((feed, time, self._shape.result(pa.concat_tables(tables))) for feed, tables in by_feed.items())
        return [part for part in found if part[2].num_rows] + self._selected(entries, recent)

    def _selected(self, entries: list[Entry], feeds: Mapping[Selection, Feed]) -> Parts:
        """As `_divided`, for each selection by itself."""
        found: Parts = []
        for time, entries_then in groupby(entries, lambda entry: entry.time) if feeds else ():
            changes = pa.concat_tables([entry.changes for entry in entries_then])
            chosen = ((feed, time, selection.rows(changes)) for selection, feed in feeds.items())
            found += (part for part in chosen if part[2].num_rows)
        return found


class Partitions:
    """The partitioned feeds of a server."""

    def __init__(self) -> None:
        self._known: dict[tuple[Feed, Shape], PartitionedFeed] = {}

    def feed(self, source: Feed, selection: Selection) -> Feed:
        """The feed of a selection from the relation of `source`. The caller joins it."""
        key = source, selection.shape
        known = self._known.get(key)
        if known is None or known.group.failure is not None:
            known = self._known[key] = PartitionedFeed(source, selection.shape)
            known.abandoned = partial(self._remove, key, known)
        return known.feed(selection)

    def _remove(self, key: tuple[Feed, Shape], partitioned: PartitionedFeed) -> None:
        if self._known.get(key) is partitioned:
            del self._known[key]

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return sum(partitioned.buffered_bytes for partitioned in self._known.values())
