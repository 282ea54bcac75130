"""Subscriptions: readers of feeds, with the rows at the time at which they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Altered
from catalog.log import Log
from catalog.objects.relations import Collection
from server.coordinator.collection_feeds import CollectionFeeds
from server.coordinator.committer import Committer
from server.coordinator.dataflows import Dataflows
from server.coordinator.queries import Queries
from server.coordinator.reads import Reads, altered_error
from server.coordinator.snapshot_cache import collection_schema, log_tables
from server.dataflow.runtime.computation import LOOP_ROWS_MAX, Computation
from server.dataflow.stream.feed import Feed, Reader
from server.dataflow.stream.partitioned_feed import Partitions
from server.dataflow.stream.selection import Selection
from server.timeline.frontiers import Frontiers


@dataclass(frozen=True, slots=True)
class Joined:
    """A reader of a feed, the relation at `as_of`, and the changes after `as_of` that precede the reader.

    `tables` are rows or changes whose sum is the relation at `as_of`. `times` are the times of the changes between
    `as_of` and the reader's first entry. `changes` returns the changes of one of them, until `release` is called;
    PgError if the relation has an error then. `relation`: the name of a collection.
    """

    feed: Feed
    reader: Reader
    as_of: Timestamp
    tables: list[pa.Table]
    times: list[Timestamp]
    changes: Callable[[Timestamp], Awaitable[list[pa.Table]]]
    release: Callable[[], None]
    relation: str | None = None


async def _selected(selection: Selection, table: pa.Table) -> pa.Table:
    """Returns the selected rows of a table of rows or changes."""
    return selection.rows(table) if table.num_rows <= LOOP_ROWS_MAX else await asyncio.to_thread(selection.rows, table)


async def _no_changes(_: Timestamp) -> list[pa.Table]:
    return []


class Subscriptions:
    """Subscribes to collections and queries."""

    def __init__(
        self,
        committer: Committer,
        log: Log,
        frontiers: Frontiers,
        reads: Reads,
        dataflows: Dataflows,
        feeds: CollectionFeeds,
        queries: Queries,
    ) -> None:
        self._committer = committer
        self._log = log
        self._frontiers = frontiers
        self._reads = reads
        self._dataflows = dataflows
        self._feeds = feeds
        self._queries = queries
        self._partitions = Partitions()

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed of a selection has not taken."""
        return self._partitions.buffered_bytes

    async def join_collection(self, id: ObjectId, as_of: Timestamp, selection: Selection | None = None) -> Joined:
        """Subscribes to the log's changes of a collection. The caller holds it at `as_of` until this returns.

        `selection`: the rows that are wanted; None: all rows.
        """
        item = self._committer.state.items[id]
        assert isinstance(item, Collection)
        whole = self._feeds.feed(id)
        feed = whole if selection is None else self._partitions.feed(whole, selection)
        holder = self._frontiers.hold({id}, as_of)
        reader = feed.join()
        upper = feed.upper

        async def changes(time: Timestamp) -> list[pa.Table]:
            self._reads.check_errors((id,), time)
            found = await self._tables(item, time, time + 1)
            if any(map(updates.has_retractions, found)):
                await self._reads.check_multiplicities(id, as_of + 1, time)
            holder.advance(time)
            return found if selection is None else [await _selected(selection, table) for table in found]

        try:
            if selection is None:
                await self._reads.final(item, as_of)
                self._reads.check_errors((id,), as_of)
                tables = await self._tables(item, 0, as_of + 1)
                self._reads.require(item)
            else:
                tables = [await _selected(selection, await self._reads.rows(id, as_of))]
        except BaseException:
            reader.close()
            holder.release()
            raise
        lower = as_of + 1
        times = sorted({*self._log.times(id, lower, upper), *self._reads.error_times(id, lower, upper)})
        if times:
            holder.advance(times[0] - 1)
        else:
            holder.release()  # `tables` has all that is to be sent, so a slow client holds no history
        empty = collection_schema(item).empty_table()
        if selection is not None:
            empty = selection.rows(empty)
        return Joined(feed, reader, as_of, [empty, *tables], times, changes, holder.release, item.name)

    async def _tables(self, item: Collection, lower: int, upper: int) -> list[pa.Table]:
        try:
            return await asyncio.to_thread(log_tables, self._log, item, lower, upper)
        except Altered:
            raise altered_error(item.name) from None

    async def join_query(self, computation: Computation, as_of: Timestamp, *, exact: bool) -> Joined:
        """Subscribes to the changes of a query.

        Joins the running dataflow of an equal query if that can serve `as_of`, else starts a dataflow. Without `exact`,
        any time from `as_of` on may be chosen, so that every running dataflow can be joined. NotReadable if an input
        cannot be read at `as_of`.
        """
        if (error := self._dataflows.error_of(computation.inputs, as_of)) is not None:
            raise error
        feed = self._queries.feed(computation, as_of, exact=exact)
        reader = feed.join()
        try:
            while not feed.hydrated or feed.upper <= as_of:
                if feed.failure is not None:
                    raise feed.failure
                await feed.moved.wait()
        except BaseException:
            reader.close()
            raise
        tables = [feed.current_rows]
        if exact:
            tables += [updates.negate(entry.changes) for entry in reader.untaken() if entry.time > as_of]
        else:
            reader.take()  # `current_rows` includes these changes
            as_of = Timestamp(feed.upper - 1)
        return Joined(feed, reader, as_of, tables, [], _no_changes, lambda: None)
