"""A maintained query: its rows at one time, then its changes at later times.

A `Computation` has a current time. `hydrate` sets it and computes the rows, `advance` moves it forward and computes the
changes. `Recomputation` computes the whole query and subtracts the previous rows; `incremental` uses operators.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import pyarrow as pa
from prometheus_client import Histogram

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.inputs import Inputs
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime.hydration import Hydration
from server.dataflow.runtime.row_batches import RowBatches
from server.dataflow.runtime.spark_rows import shaped, spark_rows
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.metrics import Durations
from server.runtime.trace import step
from server.spark import Engine, Runner
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan

TOGETHER = 2  # times that a lagging `Recomputation` computes concurrently; each occupies a slot of the engine

Present = Callable[[], Awaitable[pa.Table]]


class Holder(Protocol):
    """Keeps the history of the inputs from a time on (`server.timeline.frontiers.Holder`)."""

    @property
    def time(self) -> Timestamp: ...

    def advance(self, time: int) -> None:
        """Releases the times before `time`."""
        ...


Hold = Callable[[], AbstractContextManager[Holder]]
"""Holds the history that the dataflow holds now, until it is left."""
ReadRows = Callable[[ObjectId, Timestamp], Awaitable[pa.Table]]


LOOP_ROWS_MAX = 20_000
"""Up to this number, the rows of a relation are filtered on the event loop."""


class Computation(Protocol):
    """A maintained query. Only one task at a time may use it."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def fingerprint(self) -> str:
        """A text that is the same for equivalent queries over the same objects."""
        ...

    @property
    def arrangements(self) -> Sequence[tuple[str, Arrangement]]:
        """The arrangements that it uses, each with the names of its key columns."""
        ...

    @property
    def relevant(self) -> Mapping[ObjectId, Sequence[KeyValues]]:
        """Conditions by input. A row that matches none of them does not affect the result. No entry: every row may."""
        ...

    @property
    def next_time(self) -> Timestamp | None:
        """The next time at which the rows change even if no input does. None if there is none."""
        ...

    @property
    def hydration(self) -> Hydration:
        """The progress of `hydrate`, or the outcome of the last one."""
        ...

    async def hydrate(self, as_of: Timestamp, stored: pa.Table | None = None) -> pa.Table:
        """Computes the state at `as_of`, which replaces any previous state, and returns the rows.

        After an error nothing of the new state is kept.
        `stored`: the rows at `as_of`, if the sink has stored them. They are returned, and need not be computed.
        """
        ...

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        """The next times in [lower, upper) at which the rows may change, as many as one `advance` should process.

        Ascending; empty only if there are none. `advance` can cause further, later times (temporal filters).
        """
        ...

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        """Moves the computation to the last of `times` and returns the consolidated changes at each of them.

        `times` ascend and are later than the current time. Changes of the inputs between two of the times are
        attributed to the later one. After an error or a cancellation the current time is unchanged. `present` returns
        the rows at the current time: it permits a full recomputation if that is cheaper. If it is cheaper, but there
        are several times, an implementation may raise; the caller then passes one time after another.
        """
        ...

    def pass_to(self, time: Timestamp) -> None:
        """Moves the computation to a time. No change of an input until then may affect the result."""
        ...

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        """If a step has dropped the state, builds it again in the background; meanwhile `advance` computes all rows.

        `hold` is called when this begins, perhaps after other dataflows. After an error, which `failed` gets, the next
        call tries again. Does nothing if there is a state or if it is being restored.
        """
        ...

    def close(self) -> None:
        """Releases the state. May be called twice."""
        ...

    async def closed(self) -> None:
        """Returns when all background work has ended. Called after `close`."""
        ...


@dataclass(slots=True)
class StepDurations:
    """The number and the durations of a dataflow's steps. `histogram`: the metric of all dataflows together."""

    histogram: Histogram | None = None
    durations: Durations = field(default_factory=Durations)
    count: int = 0
    last_s: float = 0.0
    max_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.durations.total_s

    def add(self, seconds: float) -> None:
        self.count += 1
        self.last_s = seconds
        self.max_s = max(self.max_s, seconds)
        self.durations.add(seconds)
        if self.histogram is not None:
            self.histogram.observe(seconds)


async def advanced(
    computation: Computation, times: Sequence[Timestamp], present: Present, durations: StepDurations
) -> AsyncIterator[tuple[Sequence[Timestamp], list[pa.Table] | Exception]]:
    """Yields the times of each step with the changes at each of them, or one time with the error of the query there.

    The caller continues with the times that are left, if any. After an error, the changes at the next successful time
    are relative to the last successful one.
    """
    together = len(times)
    at = 0
    while at < len(times):
        part = times[at : at + together]
        begun = monotonic()
        try:
            found = await computation.advance(part, present)
        except Exception as error:
            raise_if_cancelled()
            if len(part) > 1:
                together = len(part) // 2
                continue
            yield part, error
        else:
            durations.add(monotonic() - begun)
            yield part, found
            if len(part) == 1:
                return  # with a state, the caller has more times again; without one, each step computes all rows
            together *= 2  # what was refused may have been a single large change
        at += len(part)


async def compute(
    plan: QueryPlan,
    bindings: Bindings,
    engine: Runner,
    read: ReadRows,
    as_of: Timestamp,
    *,
    batches: RowBatches | None = None,
    patient: bool = False,
) -> pa.Table:
    """The query's rows at `as_of`, with columns c0, c1, ...; without Spark if the plan has a `direct_scan`.

    `read` returns a relation's rows; it may omit rows that do not meet the plan's `key_filters`.
    `batches`: computes few rows together with those of other callers. `patient`: as in `Engine.run`.
    """
    views: dict[str, pa.Table] = {}
    for id in sorted(plan.scanned):
        with step("read", id) as reading:
            views[id] = await read(id, as_of)
            reading.rows = views[id].num_rows
    schema = updates.rows_schema([field.type.arrow for field in plan.columns])
    if plan.direct_scan is not None:
        with step("take") as taking:
            source = views[plan.direct_scan.source]
            if source.num_rows <= LOOP_ROWS_MAX and bindings.are_short:
                rows = plan.direct_scan.rows(source, bindings)
            else:
                rows = await asyncio.to_thread(plan.direct_scan.rows, source, bindings)
            rows = rows.rename_columns(schema.names)
            taking.rows = rows.num_rows
        return rows
    rowwise = plan.rowwise if batches is not None and bindings.are_short else None
    if rowwise is not None and views[rowwise.source].num_rows == 0 and not plan.uses_session:
        return schema.empty_table()  # functions of the session may be refused, even if they are called for no row
    statement = None if rowwise is None else rowwise.statement(views[rowwise.source], bindings)
    with step("spark") as computing:
        if rowwise is not None and batches is not None and statement is not None:
            found = await batches.run(statement[0], rowwise.view, statement[1])
        else:
            found = await spark_rows(plan, bindings, engine, views, patient=patient)
        rows = shaped(found, schema)
        computing.rows = rows.num_rows
    return rows


class Recomputation:
    """Computes the whole query at each time at which an input changes and subtracts the previous rows.

    The query has no unbound parameters and does not depend on the session or the clock.
    """

    arrangements: Sequence[tuple[str, Arrangement]] = ()
    relevant: Mapping[ObjectId, Sequence[KeyValues]] = {}
    next_time: Timestamp | None = None

    def __init__(self, plan: QueryPlan, engine: Engine, inputs: Inputs) -> None:
        self._plan = plan
        self._engine = engine
        self._reads = inputs
        self._rows: pa.Table = None  # at the current time
        self.inputs = plan.inputs
        self.fingerprint = plan.fingerprint
        self.hydration = Hydration()

    async def hydrate(self, as_of: Timestamp, stored: pa.Table | None = None) -> pa.Table:
        self._reads.check_errors(self.inputs, (as_of,))
        hydration = self.hydration

        async def read(id: ObjectId, as_of: Timestamp) -> pa.Table:
            rows = await self._reads.rows(id, as_of)
            hydration.rows_read += rows.num_rows
            return rows

        with hydration.running(as_of, 1, sum(self._reads.log_row_count(id, 0, as_of + 1) for id in self.inputs)):
            self._rows = await self._computed(as_of, read) if stored is None else stored
            hydration.operators_done = 1
        return self._rows

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        return sorted({time for id in self.inputs for time in self._reads.change_times(id, lower, upper)})[:TOGETHER]

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        self._reads.check_errors(self.inputs, times)
        rows, changes = self._rows, []
        for new in await self._computed_at(times):
            changes.append(await asyncio.to_thread(updates.difference, new, rows))
            rows = new
        self._rows = rows
        return changes

    def pass_to(self, time: Timestamp) -> None:
        """Does nothing: the rows are those at this time, too."""

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        """Does nothing: no step drops the rows."""

    def close(self) -> None:
        self._rows = None

    async def closed(self) -> None:
        """Returns at once."""

    async def _computed_at(self, times: Sequence[Timestamp]) -> list[pa.Table]:
        """The rows at each of the times, computed concurrently."""
        tasks = [asyncio.ensure_future(self._computed(time, self._reads.rows)) for time in times]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _computed(self, as_of: Timestamp, read: ReadRows) -> pa.Table:
        """The rows at `as_of`. Waits while the engine is unavailable: a dataflow has no client that could retry."""
        return await compute(self._plan, Bindings(), self._engine, read, as_of, patient=True)
