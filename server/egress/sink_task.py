"""The task of one sink: copies committed changes of a collection to an external system, in order of time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import numpy as np
import pyarrow as pa
import structlog

from catalog import source_state, updates
from catalog.ids import Timestamp
from catalog.layout import Altered
from catalog.objects.relations import Collection
from catalog.objects.sinks import Sink
from catalog.source_definition import Envelope
from catalog.store import MustEnd
from protocol.cdcv2.messages import TIME_FIELD
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.coordinator.committer import Conflict, Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.snapshot_cache import collection_schema, log_tables
from server.egress.definitions import definition_of
from server.egress.downstream import Downstream, Written
from server.egress.kinds import KINDS
from server.egress.labels import text_columns, with_labels
from server.egress.sink_kind import progress_interval_s
from server.ingest.upstream import UpstreamError
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.threads import to_the_end
from server.timeline.frontiers import Holder

PROGRESS_S = 10.0  # between two advances of the frontier while nothing changes
COMMIT_S = 1.0  # between two commits of the frontier of a downstream that keeps it
WRITE_ROWS = 200_000  # changes that are written together, unless one time has more
WRITE_TIMES = 1_000  # timestamps that are written together
LOOP_ROWS = 256  # more changes than these are read and consolidated in a thread
RETRY_S = 1.0  # pause before the first retry; it doubles with each further one
RETRY_S_MAX = 30.0
PATIENCE_S = 60.0  # the status is STALLED while the external system takes longer to confirm a write
AS_OF, FRONTIER = "as of", "frontier"
TARGET = "target"
"""The key of a sink's state with the `target` of its downstream."""
COLUMNS = "columns"
"""The key of a sink's state with the names and types of the columns of the rows that it has written, as JSON."""

log = structlog.get_logger()


class SinkStatus(StrEnum):
    """The status of a sink. STALLED: it cannot read or write, and tries again, or waits for the external system."""

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
        self.sink = sink
        self.status = SinkStatus.STARTING
        self.error: str | None = None
        """Why the sink is STALLED; None otherwise."""
        self.hint: str | None = None
        """What to do about `error`."""
        self.frontier: Timestamp | None = None
        """All changes at times before it are written."""
        self.written = Written()
        self.errors = 0
        """The number of attempts to write that failed."""
        self.definition = definition_of(coordinator.state, sink)
        """The definition that was used last."""
        self._coordinator = coordinator
        self._holder = holder
        self._progress_s = progress_interval_s(sink.options, progress_s)
        self._target: str | None = None  # that is committed
        self._committed_at = 0.0  # when the frontier was committed, by the monotonic clock

    @property
    def held_at(self) -> Timestamp:
        """The time from which the sink holds the history of its collection."""
        return self._holder.time

    @property
    def lag_ms(self) -> int:
        """The age of the oldest change that is not written, measured to the collection's `upper`. 0 if there is none.

        Before the frontier is known, everything after `held_at` counts as not written.
        """
        coordinator, on = self._coordinator, self.sink.on
        oldest = self.held_at if self.frontier is None else coordinator.log.next_time(on, self.frontier)
        return 0 if oldest is None else max(0, coordinator.frontiers.upper(on) - oldest)

    async def run(self) -> None:
        """Runs until cancelled, or until the sink is dropped."""
        retry_s = RETRY_S / 2
        try:
            while self.sink.id in self._coordinator.state.items:
                frontier = self.frontier
                try:
                    await self._copy()
                    continue  # the definition has changed
                except MustEnd:
                    raise  # the server must stop
                except Conflict:
                    return  # the sink was dropped
                except Altered:
                    continue  # the table was altered
                except (PgError, UpstreamError) as error:
                    raise_if_cancelled()
                    self._report(SinkStatus.STALLED, error.message, error.hint)
                except OSError as error:
                    raise_if_cancelled()
                    self._report(SinkStatus.STALLED, str(error))
                except Exception as error:
                    raise_if_cancelled()
                    log.exception("internal error in a sink", sink=self.sink.id)
                    self._report(SinkStatus.STALLED, f"internal error: {error}")
                self.errors += 1
                retry_s = RETRY_S if self.frontier != frontier else min(2 * retry_s, RETRY_S_MAX)
                await asyncio.sleep(retry_s)
        finally:
            self._holder.release()

    async def _copy(self) -> None:
        """Continues at the frontier of the downstream. Returns when the definition has changed."""
        state = source_state.load(self._coordinator.store, self.sink.id)
        if AS_OF not in state:
            # Committed first, so that an interrupted attempt is repeated with the same times.
            state = {AS_OF: self.sink.options.get(AS_OF, str(self._holder.time)).encode()}
            await self._commit(state)
        self._check_history(state)
        catalog = self._coordinator.state
        self.definition = definition_of(catalog, self._sink())
        await self._check_columns(state)
        kind, coordinator = KINDS[self.sink.system], self._coordinator
        downstream = kind.downstream(self.definition, self.written, coordinator.engine, coordinator.scratch)
        try:
            committed = Timestamp(int(state[FRONTIER])) if FRONTIER in state else None
            self._target = state[TARGET].decode() if TARGET in state else None
            with self._reporting_waits():
                frontier = await downstream.open(committed, self._target)
            if frontier is None:
                frontier = await self._begin(downstream, Timestamp(int(state[AS_OF])))
            self.frontier = frontier
            self._report(SinkStatus.RUNNING, None)
            while self._coordinator.state is catalog or self._is_defined_as_before():
                catalog = self._coordinator.state
                frontier = await self._write_next(downstream, frontier)
        finally:
            await downstream.close()

    def _is_defined_as_before(self) -> bool:
        return definition_of(self._coordinator.state, self._sink()) == self.definition

    def _sink(self) -> Sink:
        """The sink as it is in the catalog. Conflict if it was dropped."""
        sink = self._coordinator.state.items.get(self.sink.id)
        if not isinstance(sink, Sink):
            raise Conflict
        return sink

    def _check_history(self, state: source_state.State) -> None:
        """PgError if changes from the frontier on are no longer in the log, which the hold prevents."""
        needed, floor = held_from(state), self._coordinator.frontiers.floors.get(self.sink.on, Timestamp(0))
        if needed is not None and needed < floor:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'sink "{self.sink.name}" needs the history from {needed} on, but it begins at {floor}',
                hint="Drop the sink and create it again.",
            )

    async def _check_columns(self, state: source_state.State) -> None:
        """PgError if messages would have rows of other columns than those before them.

        A reader finds the row that a change removes by its values. It ignores those of an added column. With UPSERT it
        finds the row by its key, and a table in PostgreSQL has its own checks.
        """
        definition = self.definition
        if definition.format is None or definition.format.envelope is Envelope.UPSERT:
            return
        now = [[column.name, column.type] for column in definition.columns]
        stored = state.get(COLUMNS)  # None also for a sink of an earlier version
        before = [] if stored is None else json.loads(stored)
        if (difference := _difference(dict(before), dict(now))) is not None:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'the columns of "{definition.on}" are not those that sink "{definition.name}" began with: '
                f"{difference}",
                hint="Drop the sink and create another one, with another topic or file.",
            )
        if before != now:
            await self._commit({COLUMNS: json.dumps(now).encode()})

    async def _begin(self, downstream: Downstream, as_of: Timestamp) -> Timestamp:
        """Writes the rows at the first time."""
        rows = await self._coordinator.reads.rows(self.sink.on, as_of) if self.sink.with_snapshot else None
        if rows is not None:
            rows = with_labels(rows, self._coordinator.state.relation(self.sink.on).columns)
        await downstream.begin(rows, as_of)
        await self._advanced(downstream, Timestamp(as_of + 1))
        return Timestamp(as_of + 1)

    async def _write_next(self, downstream: Downstream, lower: Timestamp) -> Timestamp:
        """Writes the next changes, or the frontier alone if there are none for a while. Returns the frontier."""
        coordinator, on = self._coordinator, self.sink.on
        upper, deadline = lower, time.monotonic() + self._progress_s
        times: list[Timestamp] = []
        while not times and (upper <= lower or time.monotonic() < deadline):
            await coordinator.frontiers.reached(frozenset((on,)), upper)
            upper = coordinator.frontiers.upper(on)
            coordinator.reads.check_errors((on,), upper - 1)
            errors = coordinator.reads.error_times(on, lower, upper)
            times = sorted({*coordinator.log.times(on, lower, upper), *errors})
        changes: list[pa.Table] = []
        tables: list[pa.Table] = []
        rows = 0
        for at in times:
            tables += await self._tables(at)
            if any(map(updates.has_retractions, tables)):
                await coordinator.reads.check_multiplicities(on, lower, at)
            if tables and self._is_readable(at):  # else the changes belong to the next time that can be read
                is_large = sum(table.num_rows for table in tables) > LOOP_ROWS
                found = await asyncio.to_thread(_changes_at, tables, at) if is_large else _changes_at(tables, at)
                changes.append(found)
                tables = []
                rows += found.num_rows
                if rows >= WRITE_ROWS or len(changes) >= WRITE_TIMES:
                    await self._write(downstream, changes, Timestamp(at + 1))
                    changes, rows = [], 0
        await self._write(downstream, changes, upper)
        return upper

    async def _tables(self, at: Timestamp) -> list[pa.Table]:
        """The tables of the log at a time."""
        log, on = self._coordinator.log, self.sink.on
        item = self._coordinator.state.items.get(on)
        if not isinstance(item, Collection):
            raise Conflict
        if text_columns(item.columns) != self.definition.columns:
            raise Altered
        if log.are_cached(on, at, at + 1) and log.row_count(on, at, at + 1) <= LOOP_ROWS:
            tables = log_tables(log, item, at, at + 1)
        else:
            tables = await asyncio.to_thread(log_tables, log, item, at, at + 1)
        return [with_labels(table, item.columns) for table in tables]

    def _is_readable(self, at: Timestamp) -> bool:
        """Whether the collection has no error at a time."""
        return self._coordinator.errors.at(self.sink.on, at) is None

    async def _write(self, downstream: Downstream, changes: list[pa.Table], upper: Timestamp) -> None:
        if not changes:
            item = self._coordinator.state.items.get(self.sink.on)
            if not isinstance(item, Collection):
                raise Conflict
            changes = [_changes_at([collection_schema(item).empty_table()], Timestamp(0))]
        with self._reporting_waits():
            await downstream.write(pa.concat_tables(changes), upper)
        if self.status is not SinkStatus.RUNNING:
            self._report(SinkStatus.RUNNING, None)
        await self._advanced(downstream, upper)

    @contextmanager
    def _reporting_waits(self) -> Iterator[None]:
        """Reports STALLED if its body takes longer than PATIENCE_S. A write that waits for a lock may succeed later."""
        reason = f"the external system has not answered for {PATIENCE_S:.0f} s"
        timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._report, SinkStatus.STALLED, reason)
        try:
            yield
        finally:
            timer.cancel()

    async def _advanced(self, downstream: Downstream, frontier: Timestamp) -> None:
        """Called when all changes at times before `frontier` are durable.

        If the downstream keeps the frontier, it is committed only to advance the hold, and therefore less often.
        """
        if not downstream.keeps_frontier or time.monotonic() >= self._committed_at + COMMIT_S:
            state = {FRONTIER: b"%d" % frontier}
            if downstream.target not in (None, self._target):
                self._target = downstream.target
                state[TARGET] = downstream.target.encode()
            await self._commit(state)
            self._committed_at = time.monotonic()
            self._holder.advance(frontier - 1)
        self.frontier = frontier

    async def _commit(self, state: source_state.State) -> None:
        """Cancel safety: the commit is completed before CancelledError is raised."""

        async def commit() -> None:
            await self._coordinator.commit(Request(source_state={self.sink.id: state}))

        await to_the_end(commit())

    def _report(self, status: SinkStatus, error: str | None, hint: str | None = None) -> None:
        if (status, error) != (self.status, self.error):
            write = log.info if error is None else log.warning
            write(f"sink {status}", sink=self.sink.id, error=error, hint=hint)
        self.status, self.error, self.hint = status, error, hint


def _difference(before: dict[str, str], now: dict[str, str]) -> str | None:
    """The first of some columns, given as types by name, that is no more what it was; None if all are."""
    for name, type in before.items():
        if name not in now:
            return f'column "{name}" was dropped or renamed'
        if now[name] != type:
            return f'column "{name}" had type {parse_type(type).display}'
    return None


def _changes_at(tables: list[pa.Table], at: Timestamp) -> pa.Table:
    """The consolidated changes with their time."""
    changes = updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
    times = pa.array(np.full(changes.num_rows, at, np.int64))
    return changes.add_column(changes.num_columns - 1, TIME_FIELD, times)
