"""The task of one sink: copies committed changes of a collection to an external system, in order of time."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import structlog

from catalog import source_state, updates
from catalog.objects import Collection, Sink, Timestamp
from catalog.store import MustEnd
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import JsonEncoder
from protocol.cdcv2.messages import MESSAGE_UPDATES, TIME_FIELD
from protocol.cdcv2.writer import Writer
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.coordinator.committer import Conflict, Request
from server.coordinator.coordinator import Coordinator
from server.egress.changes_file import ChangesFile
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.threads import to_the_end
from server.timeline.frontiers import Holder

PROGRESS_S = 10.0  # between two progress statements while nothing changes
WRITE_ROWS = 50_000  # updates that are encoded at a time
RETRY_S = 1.0
AS_OF, FRONTIER = "as of", "frontier"

log = structlog.get_logger()


class SinkStatus(StrEnum):
    """The status of a sink. STALLED: it cannot read or write, and tries again."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"


def held_from(state: source_state.State) -> Timestamp | None:
    """The time from which a sink with this state needs the history of its collection; None if it has none yet."""
    if (frontier := state.get(FRONTIER)) is not None:
        return Timestamp(int(frontier) - 1)
    as_of = state.get(AS_OF)
    return None if as_of is None else Timestamp(int(as_of))


class SinkTask:
    """Writes the changes of a sink's collection. `run` is its task."""

    def __init__(self, sink: Sink, coordinator: Coordinator, holder: Holder, *, progress_s: float = PROGRESS_S) -> None:
        """`holder`: of the collection, at the time of `held_from`, or at the latest time. The task releases it."""
        item = coordinator.state.items[sink.on]
        assert isinstance(item, Collection)
        self.sink = sink
        self.status = SinkStatus.STARTING
        self.error: str | None = None
        """The reason of STALLED."""
        self.frontier: Timestamp | None = None
        """All changes at times before it are written, with the statement that they are all."""
        self.messages = self.updates = self.bytes = 0
        """Written since the start."""
        self._coordinator = coordinator
        self._holder = holder
        self._progress_s = progress_s
        self._encoder = JsonEncoder([EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in item.columns])
        self._file = ChangesFile(Path(sink.options["path"]))

    @property
    def held_at(self) -> Timestamp:
        """The time from which the collection's history is kept for the sink."""
        return self._holder.time

    async def run(self) -> None:
        """Runs until cancelled, or until the sink is dropped."""
        try:
            while self.sink.id in self._coordinator.state.items:
                try:
                    await self._write()
                except MustEnd:
                    raise  # the server ends, too
                except Conflict:
                    return  # the sink was dropped
                except (PgError, OSError) as error:
                    raise_if_cancelled()
                    self._report(SinkStatus.STALLED, error.message if isinstance(error, PgError) else str(error))
                finally:
                    await asyncio.to_thread(self._file.close)
                await asyncio.sleep(RETRY_S)
        finally:
            self._holder.release()

    async def _write(self) -> None:
        """Continues at the committed frontier, and writes changes until an error."""
        coordinator, on = self._coordinator, self.sink.on
        state = source_state.load(coordinator.store, self.sink.id)
        if AS_OF not in state:
            # It is committed first: an attempt that is interrupted is repeated with the same times.
            state = {AS_OF: b"%d" % self._holder.time}
            await self._commit(state)
        self._check_history(state)
        as_of = Timestamp(int(state[AS_OF]))
        await asyncio.to_thread(self._file.open, is_new=FRONTIER not in state)
        if FRONTIER not in state:
            writer = Writer()
            if self.sink.with_snapshot:
                rows = await coordinator.reads.rows(on, as_of)
                await self._append(
                    writer, await asyncio.to_thread(updates.consolidate, updates.as_changes(rows)), as_of
                )
            await self._advance(writer, Timestamp(as_of + 1))
        else:
            writer = Writer(int(state[FRONTIER]))
            self.frontier = Timestamp(writer.frontier)
        self._report(SinkStatus.RUNNING, None)
        while True:
            await self._write_next(writer)

    def _check_history(self, state: source_state.State) -> None:
        """PgError if changes from the frontier on are no longer in the log, which the hold prevents."""
        needed, floor = held_from(state), self._coordinator.frontiers.floors.get(self.sink.on, Timestamp(0))
        if needed is not None and needed < floor:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'sink "{self.sink.name}" needs the history from {needed} on, which begins at {floor}',
                hint="Drop the sink and create it again.",
            )

    async def _write_next(self, writer: Writer) -> None:
        """Writes the next changes with a statement, or a statement alone if there are none for a while."""
        coordinator, on = self._coordinator, self.sink.on
        lower, upper, deadline = writer.frontier, Timestamp(writer.frontier), time.monotonic() + self._progress_s
        times: list[Timestamp] = []
        while not times and (upper <= lower or time.monotonic() < deadline):
            await coordinator.frontiers.reached(frozenset((on,)), upper)
            upper = coordinator.frontiers.upper(on)
            coordinator.reads.check_errors((on,), upper - 1)
            errors = coordinator.reads.error_times(on, lower, upper)
            times = sorted({*coordinator.log.times(on, lower, upper), *errors})
        tables: list[pa.Table] = []
        for at in times:
            tables += await asyncio.to_thread(coordinator.log.tables, on, at, at + 1)
            if any(map(updates.takes_away, tables)):
                await coordinator.reads.check_multiplicities(on, lower, at)
            if tables and self._is_readable(at):  # else the changes belong to the next time that can be read
                changes = pa.concat_tables([updates.as_changes(table) for table in tables])
                await self._append(writer, await asyncio.to_thread(updates.consolidate, changes), at)
                tables = []
        await self._advance(writer, upper)

    def _is_readable(self, at: Timestamp) -> bool:
        """Whether the collection has no error at a time."""
        return self._coordinator.errors.at(self.sink.on, at) is None

    async def _append(self, writer: Writer, changes: pa.Table, at: Timestamp) -> None:
        """Writes consolidated changes at a time."""
        for start in range(0, changes.num_rows, WRITE_ROWS):
            part = changes.slice(start, WRITE_ROWS)
            times = pa.array(np.full(part.num_rows, at, np.int64))
            part = part.add_column(part.num_columns - 1, TIME_FIELD, times)
            writer.add(part)
            self.messages += -(-part.num_rows // MESSAGE_UPDATES)
            self.bytes += await asyncio.to_thread(self._file.append, self._encoder.updates(part))
        self.updates += changes.num_rows

    async def _advance(self, writer: Writer, upper: Timestamp) -> None:
        """Writes the statement for the times before `upper`. When it is on disk, commits `upper` as frontier."""
        statement = writer.advance(upper)
        if statement is None:
            return
        self.bytes += await asyncio.to_thread(self._file.append, [self._encoder.progress(statement)])
        self.messages += 1
        await asyncio.to_thread(self._file.sync)
        await self._commit({FRONTIER: b"%d" % upper})
        self.frontier = upper
        self._holder.advance(upper - 1)

    async def _commit(self, state: source_state.State) -> None:
        """Cancel safety: a request that is queued is committed before CancelledError is raised."""

        async def commit() -> None:
            await self._coordinator.commit(Request(source_state={self.sink.id: state}))

        await to_the_end(commit())

    def _report(self, status: SinkStatus, error: str | None) -> None:
        if (status, error) != (self.status, self.error):
            write = log.info if error is None else log.warning
            write(f"sink {status}", sink=self.sink.id, error=error)
        self.status, self.error = status, error
