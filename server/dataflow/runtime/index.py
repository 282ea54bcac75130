"""Indexes: named arrangements in which SELECT looks up rows.

A `LogIndex` contains a collection's rows as they are in the log and shares its arrangement with dataflows that look up
the same rows. An `IndexSink` contains rows that a dataflow computes: those of a view, or those of a collection if a key
is an expression. An index follows the `upper` of its relation and can be read at times >= its `since`. Before it is
hydrated, and at earlier times, `find` returns None and the caller reads the relation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy as np
import pyarrow as pa
import structlog

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.indexes import Index
from protocol.columnar.hashing import Hashes
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements.arrangement import Arrangement, Arranger
from server.dataflow.arrangements.run import ByKey
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.runtime.commit_rate import CommitRate
from server.dataflow.runtime.computation import StepDurations
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.threads import in_thread, to_the_end
from server.timeline.frontiers import Frontiers

log = structlog.get_logger()

WAITING_MAX = 64  # times whose changes an `IndexSink` inserts together
WAITING_BYTES = 32 << 10  # larger changes are inserted at once: most of their cost is that of their rows


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The rows of an index: the relation's columns, then the keys that are expressions.

    `width`: the number of the relation's columns. `key`: the positions of the keys.
    """

    schema: pa.Schema
    width: int
    key: Sequence[int]

    @property
    def sorting(self) -> ByKey:
        return ByKey(tuple(f"c{number}" for number in self.key))


class IndexArrangement(Protocol):
    """The rows of an index."""

    index: Index

    @property
    def hydrated(self) -> bool: ...

    @property
    def upper(self) -> Timestamp:
        """The index has all rows at times before `upper`."""
        ...

    @property
    def arrangement(self) -> Arrangement | None: ...

    async def find(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        """The relation's rows at `as_of` whose key has one of the hashes; all rows if `key_hashes` is None.

        Rows of other keys with the same hash may be included. Returns None if the index cannot be read at `as_of`. The
        relation must be final at `as_of`.
        """
        ...


class LogIndex:
    """A collection's rows, arranged by some of its columns. `run` is the task that maintains it."""

    def __init__(
        self, index: Index, layout: IndexLayout, inputs: Inputs, frontiers: Frontiers, shared: SharedArrangements
    ) -> None:
        self.index = index
        self.steps = StepDurations()
        self.hydrated = False
        self._rate = CommitRate(monotonic())
        self._reads = inputs
        self._frontiers = frontiers
        since = frontiers.since(index.id)
        self.upper = Timestamp(since)
        self._holder = frontiers.hold_history((index.id,), since)
        self._shared = shared
        self._schema = layout.schema
        self._key = (index.on, tuple(range(layout.width)), layout.sorting)
        self._lease = shared.lease(self._key, layout.schema, since)

    @property
    def arrangement(self) -> Arrangement:
        return self._lease.arrangement

    async def run(self) -> None:
        """Runs until cancelled, then releases the rows.

        It pauses after a step, so that frequent commits are inserted together. A lookup that needs them inserts them
        itself.
        """
        on = frozenset((self.index.on,))
        try:
            while True:
                await self._frontiers.reached(on, self.upper)
                upper = self._frontiers.upper(self.index.on)
                begun, before = monotonic(), self.arrangement.upper
                if await self._reached(Timestamp(upper - 1)):
                    if self.arrangement.upper > before:
                        self.steps.add(monotonic() - begun)
                    self.hydrated = True
                    self._holder.advance(upper - 1)
                    self._lease.advance(self._frontiers.since(self.index.id))
                now, changed = monotonic(), len(self._reads.change_times(self.index.on, self.upper, upper))
                self._rate.add(changed, now)
                self.upper = upper
                if changed:
                    await asyncio.sleep(self._rate.unread_pause_s(now - begun, 0))
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
                self._holder = self._frontiers.hold_history((self.index.id,), since)
                holder.release()
                self._lease = self._shared.lease(self._key, self._schema, since)
            return False
        return True

    async def find(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        frontiers, id = self._frontiers, self.index.id
        if not self.hydrated or id not in frontiers.floors or as_of < max(self._lease.time, frontiers.since(id)):
            return None
        holder = frontiers.hold_history((id,), as_of)  # the index must not compact beyond `as_of` meanwhile
        try:
            lease = self._lease
            reached = await self._reached(as_of) and self.hydrated and lease is self._lease
            return await _found(lease.arrangement, key_hashes, as_of) if reached else None
        finally:
            holder.release()


class IndexSink:
    """The rows of a query, arranged by the keys of an index. They are computed again after a restart.

    The changes of several times are inserted together: before a lookup, or beyond WAITING_MAX and WAITING_BYTES.
    """

    retries = True

    def __init__(
        self,
        index: Index,
        layout: IndexLayout,
        inputs: frozenset[ObjectId],
        frontiers: Frontiers,
        arranger: Arranger,
        restart: Callable[[], None],
    ) -> None:
        """`inputs`: the collections that the query reads. `restart` replaces this index by a new one."""
        self.index = index
        self.arrangement: Arrangement | None = None
        self.upper = frontiers.since(index.id)
        self.awaited = asyncio.Event()
        self._layout = layout
        self._inputs = inputs
        self._frontiers = frontiers
        self._arranger = arranger
        self._restart = restart
        self._failed_upper: Timestamp | None = None
        """While the query fails: it has no rows at times in [upper, _failed_upper)."""
        self._lost = False
        self._waiting: list[tuple[Timestamp, pa.Table]] = []
        """Changes that are not inserted yet, in the order of their times."""
        self._inserting = asyncio.Lock()

    @property
    def hydrated(self) -> bool:
        return self.arrangement is not None

    def first_time(self, time: Timestamp) -> Timestamp:
        """As `Sink.first_time`: the index's `since`, which advances while its inputs do."""
        if self.arrangement is not None:
            return time
        return max(time, self._frontiers.since_at(self.index.id, self._frontiers.least_upper(self._inputs)))

    async def rows(self) -> pa.Table | None:
        """As `Sink.rows`."""
        await self._insert()
        return None if self.arrangement is None else await _found(self.arrangement, None, Timestamp(self.upper - 1))

    async def begin(self, time: Timestamp, rows: pa.Table, stored: pa.Table | None) -> None:
        """As `Sink.begin`."""
        changes = await in_thread(updates.difference, rows, rows.slice(0, 0) if stored is None else stored)
        await self.write([(time, changes)])
        await self._insert()  # executors probe what is in files

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        """As `Sink.write`. After an error of an insert, the arrangement may be incomplete: the index is replaced."""
        if self._lost:
            self._restart()
            return
        for time, table in changes:
            await self._write(time, table)

    async def _write(self, time: Timestamp, changes: pa.Table) -> None:
        arrangement = self.arrangement or self._arranger.arrangement(self._layout.sorting, self._layout.schema, time)
        self.arrangement = arrangement
        if changes.num_rows:
            self._waiting.append((time, changes))
            if len(self._waiting) >= WAITING_MAX or sum(table.nbytes for _, table in self._waiting) > WAITING_BYTES:
                await self._insert()
        self._complete(arrangement, time, Timestamp(time + 1))

    async def _insert(self) -> None:
        """Inserts the changes that wait. OSError if the disk is full. After any error, the index is lost.

        Cancel safety: all changes are inserted, or the index is lost.
        """
        if self._waiting or self._inserting.locked():
            await to_the_end(self._insert_waiting())

    async def _insert_waiting(self) -> None:
        async with self._inserting:
            waiting, self._waiting = self._waiting, []
            if not waiting or self.arrangement is None:
                return
            times = np.repeat([time for time, _ in waiting], [changes.num_rows for _, changes in waiting])
            changes = pa.concat_tables([changes for _, changes in waiting])
            try:
                await self.arrangement.insert(changes, int(times[-1]), times)
            except Exception:  # the arrangement may be incomplete
                self._lost = True
                self.arrangement = None
                raise

    def advance(self, upper: Timestamp) -> None:
        """As `Sink.advance`."""
        if self.arrangement is not None:
            self._complete(self.arrangement, Timestamp(upper - 1), upper)

    def _complete(self, arrangement: Arrangement, time: Timestamp, upper: Timestamp) -> None:
        if self._failed_upper is not None:  # there are no rows at the times at which the query failed
            arrangement.advance(time)
            self._failed_upper = None
        self.upper = upper
        self._frontiers.index_reached(self.index.id, upper)
        since = self._frontiers.since(self.index.id)
        arrangement.advance(min(since, self._waiting[0][0]) if self._waiting else since)

    def failed(self, error: PgError, upper: Timestamp) -> None:
        """As `Sink.failed`."""
        self._failed_upper = upper

    def close(self) -> None:
        """As `Sink.close`. Lookups return None from now on."""
        self._waiting.clear()
        if self.arrangement is not None:
            self.arrangement.close()
            self.arrangement = None

    async def find(self, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        """As `IndexArrangement.find`."""
        frontiers, id = self._frontiers, self.index.id
        if not self.hydrated or id not in frontiers.floors or as_of < frontiers.since(id):
            return None
        holder = frontiers.hold_history((id,), as_of)
        try:
            while self.hydrated and self.upper <= as_of:
                if self._failed_upper is not None and as_of < self._failed_upper:
                    return None  # the caller computes the query and gets the error
                self.awaited.set()
                await self._frontiers.moved.wait()
            try:
                await self._insert()
            except OSError as error:
                raise_if_cancelled()
                log.error("index not written", index=self.index.name, id=self.index.id, error=str(error))
                self._restart()
            if self.arrangement is None or as_of < self.arrangement.since:
                return None
            rows = await _found(self.arrangement, key_hashes, as_of)
            return rows.select(self._layout.schema.names[: self._layout.width])
        finally:
            holder.release()


async def _found(arrangement: Arrangement, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table:
    found = await (arrangement.all_rows(as_of) if key_hashes is None else arrangement.probe(key_hashes, as_of))
    return await in_thread(updates.expand, found)
