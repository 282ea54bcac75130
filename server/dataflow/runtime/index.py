"""Indexes: named arrangements in which SELECT looks up rows.

A `LogIndex` contains a collection's rows as they are in the log and shares its arrangement with dataflows that look up
the same rows. A `ComputedIndex` contains rows that Spark computes: those of a view, or those of a collection if a key
is an expression. An index follows the `upper` of its relation and can be read at times >= its `since`. Before it is
hydrated, and at earlier times, `rows` returns None and the caller reads the relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

import pyarrow as pa
import structlog

from catalog import updates
from catalog.hashing import Hashes
from catalog.objects import Index, Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements.arrangement import Arrangement, Arranger
from server.dataflow.arrangements.run import ByKey
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.runtime.computation import Computation, Ticks
from server.dataflow.runtime.view import ViewDataflow
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.metrics import Metrics
from server.runtime.threads import in_thread, to_the_end
from server.timeline.frontiers import Frontiers

log = structlog.get_logger()


class IndexDataflow(Protocol):
    """Maintains an index. `run` is its task."""

    index: Index
    ticks: Ticks

    @property
    def hydrated(self) -> bool: ...

    @property
    def upper(self) -> Timestamp:
        """The index is complete at times before it."""
        ...

    @property
    def error(self) -> PgError | None:
        """The error that keeps the index from advancing."""
        ...

    @property
    def arrangement(self) -> Arrangement | None: ...

    async def run(self) -> None:
        """Runs until cancelled, then releases the rows."""
        ...

    async def rows(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        """The relation's rows at `as_of` whose key has one of the hashes; all rows if `key_hashes` is None.

        Rows of other keys with the same hash may be included. Returns None if the index cannot be read at `as_of`. The
        relation must be final at `as_of`.
        """
        ...


class LogIndex:
    """A collection's rows, arranged by some of its columns."""

    def __init__(
        self,
        index: Index,
        schema: pa.Schema,
        key: Sequence[int],
        inputs: Inputs,
        frontiers: Frontiers,
        shared: SharedArrangements,
    ) -> None:
        """`key`: the positions of the key columns. `schema`: the collection's."""
        self.index = index
        self.ticks = Ticks()
        self.hydrated = False
        self.error: PgError | None = None
        self._reads = inputs
        self._frontiers = frontiers
        since = frontiers.since(index.id)
        self.upper = Timestamp(since)
        self._holder = frontiers.take_over((index.id,), since)
        self._shared = shared
        self._schema = schema
        self._key = (index.on, tuple(range(len(schema))), ByKey(tuple(f"c{number}" for number in key)))
        self._lease = shared.lease(self._key, schema, since)

    @property
    def arrangement(self) -> Arrangement:
        return self._lease.arrangement

    async def run(self) -> None:
        on = frozenset((self.index.on,))
        try:
            while True:
                await self._frontiers.reached(on, self.upper)
                upper = self._frontiers.upper(self.index.on)
                begun, before = monotonic(), self.arrangement.upper
                if await self._reached(Timestamp(upper - 1)):
                    if self.arrangement.upper > before:
                        self.ticks.add(monotonic() - begun)
                    self.hydrated = True
                    self._holder.advance(upper - 1)
                    self._lease.advance(self._frontiers.since(self.index.id))
                self.upper = upper
        finally:
            self.hydrated = False
            self._lease.release()
            self._holder.release()

    async def _reached(self, time: Timestamp) -> bool:
        """Brings the arrangement up to `time` and returns whether that succeeded."""
        lease = self._lease
        try:
            await lease.reach(self._reads, time)
        except OSError as error:  # the disk is full: the next call retries
            raise_if_cancelled()
            log.error("index not written", index=self.index.name, id=self.index.id, error=str(error))
            if lease is self._lease:  # the arrangement may be incomplete: it is replaced
                self.hydrated = False
                lease.invalidate()
                since, holder = self._frontiers.since(self.index.id), self._holder
                self._holder = self._frontiers.take_over((self.index.id,), since)
                holder.release()
                self._lease = self._shared.lease(self._key, self._schema, since)
            return False
        return True

    async def rows(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        frontiers, id = self._frontiers, self.index.id
        if not self.hydrated or id not in frontiers.floors or as_of < max(self._lease.time, frontiers.since(id)):
            return None
        holder = frontiers.take_over((id,), as_of)  # the index must not compact beyond `as_of` meanwhile
        try:
            lease = self._lease
            reached = await self._reached(as_of) and self.hydrated and lease is self._lease
            return await _found(lease.arrangement, key_hashes, as_of) if reached else None
        finally:
            holder.release()


class ComputedIndex:
    """The rows of a query, arranged by some of its columns. The first `width` columns are the relation's."""

    def __init__(
        self,
        index: Index,
        schema: pa.Schema,
        key: Sequence[int],
        width: int,
        computation: Computation,
        frontiers: Frontiers,
        arranger: Arranger,
        keeps_too_much: Callable[[ViewDataflow], bool],
        again: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        """`key`: the positions of the key columns. `schema`: the query's. `again` replaces this object by a new one."""
        self.index = index
        self.arrangement: Arrangement | None = None
        self.upper = frontiers.since(index.id)
        self._schema = schema
        self._sorting = ByKey(tuple(f"c{number}" for number in key))
        self._names = schema.names[:width]
        self._frontiers = frontiers
        self._arranger = arranger
        self._again = again
        self._failed = False
        self._lost = False
        self.dataflow = ViewDataflow(
            *(index, computation, frontiers, self._stored, self._write, self._fails, keeps_too_much, metrics),
            begin=self._begin,
        )
        self.ticks = self.dataflow.ticks

    @property
    def hydrated(self) -> bool:
        return self.arrangement is not None

    @property
    def error(self) -> PgError | None:
        return self.dataflow.error

    async def run(self) -> None:
        try:
            await self.dataflow.run()
        finally:
            if self.arrangement is not None:
                self.arrangement.close()
                self.arrangement = None

    def _begin(self) -> Timestamp:
        return self._frontiers.since_at(self.index.id, self._frontiers.least_upper(self.dataflow.inputs))

    async def _stored(self, as_of: Timestamp) -> pa.Table:
        assert self.arrangement is not None
        return await _found(self.arrangement, None, as_of)

    async def _write(self, time: Timestamp, changes: pa.Table | None, upper: Timestamp) -> None:
        if self._lost:
            self._again()
            return
        arrangement = self.arrangement or self._arranger.arrangement(self._sorting, self._schema, time)
        if changes is not None:
            try:
                await to_the_end(arrangement.insert(changes, int(time)))
            except OSError:  # the disk is full: the arrangement may be incomplete
                self._lost = True
                self.arrangement = None
                raise
        if self._failed:  # there are no rows at the times at which the query failed
            arrangement.advance(time)
            self._failed = False
        self.arrangement, self.upper = arrangement, upper
        self._frontiers.index_reached(self.index.id, upper)
        arrangement.advance(self._frontiers.since(self.index.id))

    def _fails(self, error: PgError) -> None:
        self._failed = True

    async def rows(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        frontiers, id = self._frontiers, self.index.id
        if not self.hydrated or id not in frontiers.floors or as_of < frontiers.since(id):
            return None
        holder = frontiers.take_over((id,), as_of)
        try:
            while self.hydrated and self.upper <= as_of:
                if self.error is not None and as_of < self.dataflow.seen:
                    return None  # the caller computes the query and gets the error
                await self._frontiers.moved.wait()
            if self.arrangement is None or as_of < self.arrangement.since:
                return None
            return (await _found(self.arrangement, key_hashes, as_of)).select(self._names)
        finally:
            holder.release()


async def _found(arrangement: Arrangement, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table:
    found = await (arrangement.whole(as_of) if key_hashes is None else arrangement.probe(key_hashes, as_of))
    return await in_thread(updates.expand, found)
