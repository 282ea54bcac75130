"""The feeds of collections that clients subscribe to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.coordinator.committer import Committer
from server.coordinator.reads import Reads
from server.dataflow.stream.collection_feed import CollectionFeed
from server.timeline.frontiers import Frontiers


class CollectionFeeds:
    """One feed per collection that has subscribers."""

    def __init__(self, committer: Committer, frontiers: Frontiers, reads: Reads, scratch: Path) -> None:
        """`scratch`: the directory for temporary files."""
        self._committer = committer
        self._frontiers = frontiers
        self._reads = reads
        self._scratch = scratch
        self._feeds: dict[ObjectId, CollectionFeed] = {}

    def feed(self, id: ObjectId) -> CollectionFeed:
        """Returns the feed of a collection. A new feed begins at the collection's `upper`."""
        feed = self._feeds.get(id)
        if feed is None or feed.failure is not None:
            feed = self._feeds[id] = CollectionFeed(self._frontiers.upper(id), self._scratch)
            feed.abandoned = partial(self._remove, id, feed)
        return feed

    def _remove(self, id: ObjectId, feed: CollectionFeed) -> None:
        if self._feeds.get(id) is feed:
            del self._feeds[id]

    def append(self, written: Sequence[tuple[Batch, Payload]]) -> None:
        """Appends what one commit wrote: for each collection at one time, or at the times of the batch's spans."""
        tables: dict[tuple[ObjectId, Timestamp], list[pa.Table]] = {}
        for batch, payload in written:
            if (id := batch.collection) in self._feeds:
                for time in dict.fromkeys(batch.times(0, batch.time + 1)):
                    tables.setdefault((id, time), []).append(batch.part(payload.table, time, time + 1))
        for (id, time), changes in tables.items():
            check = None if self._committer.has_read_retractions(id, time) else partial(self._check, id)
            self._feeds[id].committed(time, changes, check)

    async def _check(self, id: ObjectId, time: Timestamp) -> None:
        holder = self._frontiers.hold({id}, time)
        try:
            await self._reads.check_multiplicities(id, time, time)
        finally:
            holder.release()

    def end(self, id: ObjectId, time: Timestamp, error: PgError) -> None:
        """Ends the feed of a collection that has an error at `time`, before anything is appended at this time."""
        if (feed := self._feeds.pop(id, None)) is not None:
            feed.ends(time, error)

    def close_times(self, ids: Iterable[ObjectId] | None = None) -> None:
        """Advances the feeds of these collections, by default of all, to their `upper`."""
        for id in list(self._feeds) if ids is None else self._feeds.keys() & set(ids):
            if (feed := self._feeds.get(id)) is not None:  # it is removed when its last reader has fallen behind
                feed.closed(self._frontiers.upper(id))

    def fail(self, ids: Iterable[ObjectId], error: PgError, upper: int = 0) -> None:
        """Ends those of the collections' feeds that have reached `upper`."""
        for id in self._feeds.keys() & set(ids):
            if self._feeds[id].upper >= upper:
                self._feeds.pop(id).fail(error)

    @property
    def collections(self) -> frozenset[ObjectId]:
        """The collections that have a feed."""
        return frozenset(self._feeds)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return sum(feed.buffered_bytes for feed in self._feeds.values())
