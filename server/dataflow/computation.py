"""A planned query as the dataflows see it: its rows at a time, and from then on its changes.

A `Computation` stands at a time. `hydrate` puts it there, `advance` moves it on; what is between is its own business:
`Recomputation` computes the query anew and subtracts, `incremental` follows the changes through operators.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from server.cancellation import raise_if_cancelled
from server.counts import Durations
from server.dataflow.arrangement import Arrangement
from server.dataflow.hydration import Hydration
from server.spark import Engine, Runner
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan
from server.trace import step

TOGETHER = 2  # times that a query that is computed anew takes at once when it lags: each keeps a slot of the engine

Present = Callable[[], Awaitable[pa.Table]]
ReadRows = Callable[[ObjectId, Timestamp], Awaitable[pa.Table]]


class Inputs(Protocol):
    """What a dataflow reads. A caller holds the history that it asks for."""

    def is_logged(self, id: ObjectId) -> bool:
        """Whether it is a collection whose changes the log has."""
        ...

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """The rows at a time."""
        ...

    def lines(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """How much there is to read: the lines of changes in [lower, upper), or up to now. 0 if not known."""
        ...

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        """What happened to a logged collection in [lower, upper), consolidated."""
        ...

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which something happened."""
        ...

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """NegativeCount if a row of a logged collection has a count below zero at `time`, and had none before `lower`.

        It costs nothing where whoever wrote from `lower` on has read what he took away.
        """
        ...


LOOP_ROWS_MAX = 20_000
"""Rows of a relation that are filtered on the event loop."""


class Computation(Protocol):
    """What a dataflow needs of a query. One task at a time uses it."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def fingerprint(self) -> str:
        """Equal for queries that mean the same over the same objects."""
        ...

    @property
    def arrangements(self) -> Sequence[tuple[str, Arrangement]]:
        """What it keeps to find rows by, and the columns that each goes by."""
        ...

    @property
    def hydration(self) -> Hydration:
        """How far `hydrate` is, or was when it last ended."""
        ...

    async def hydrate(self, as_of: Timestamp, known: pa.Table | None = None) -> pa.Table:
        """The rows at `as_of`, where the computation then stands; from wherever it stood before.

        `known`: those rows, where somebody has them: then only what `advance` needs is made. An error leaves nothing.
        """
        ...

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        """The next times in [lower, upper) at which the rows may change, as many as one `advance` should take.

        Ascending; empty only if there are none. What `advance` finds can add times behind those that it was given.
        """
        ...

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        """The consolidated changes at each of `times`, which ascend from where it stands; it stands at the last then.

        What the inputs did between two of the times counts for the later one. After an error, or when cancelled, it
        stands where it stood. `present` gives the rows where it stands, for whom it is cheaper to compute all anew; who
        finds that of several times raises, and is asked for one after the other.
        """
        ...

    def close(self) -> None:
        """It is not used any more. May be called twice."""
        ...


@dataclass(slots=True)
class Ticks:
    """How many ticks a dataflow has made, and how long they took. `together`: those of all dataflows."""

    together: Durations = field(default_factory=Durations)
    own: Durations = field(default_factory=Durations)
    count: int = 0
    last_s: float = 0.0
    max_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.own.total_s

    def add(self, seconds: float) -> None:
        self.count += 1
        self.last_s = seconds
        self.max_s = max(self.max_s, seconds)
        self.own.add(seconds)
        self.together.add(seconds)


async def advanced(
    computation: Computation, times: Sequence[Timestamp], present: Present, ticks: Ticks
) -> AsyncIterator[tuple[Timestamp, pa.Table | Exception]]:
    """Each of the times with its changes, or with the error that there is at that time: then they are left out, and
    the next time has the changes since the last that went well."""
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
                together = 1
                continue
            yield part[0], error
        else:
            ticks.add(monotonic() - begun)
            for time, changes in zip(part, found, strict=True):
                yield time, changes
        at += len(part)


async def compute(
    plan: QueryPlan, bindings: Bindings, engine: Runner, read: ReadRows, as_of: Timestamp, *, patient: bool = False
) -> pa.Table:
    """The query's rows at `as_of` as c0, c1, ...; without Spark where nothing is to be computed.

    `patient`: as in `Engine.run`.
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
    with step("spark") as computing:
        rows = shaped(await engine.run(await bound_sql(plan, bindings), views, patient=patient), schema)
        computing.rows = rows.num_rows
    return rows


async def bound_sql(plan: QueryPlan, bindings: Bindings) -> str:
    """The plan's statement for Spark. 54000 for parameters that are too long for one."""
    return plan.spark_sql(bindings) if bindings.are_short else await asyncio.to_thread(plan.spark_sql, bindings)


def shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """What the engine gave, with the columns that the plan has; for a plan without columns Spark has one of its own."""
    return table.rename_columns(schema.names).cast(schema) if schema.names else table.select([])


class Recomputation:
    """A maintained query, computed anew at each time at which an input changed, the last rows subtracted.

    Its parameters are bound, nothing depends on the session or the clock.
    """

    arrangements: Sequence[tuple[str, Arrangement]] = ()

    def __init__(self, plan: QueryPlan, engine: Engine, inputs: Inputs) -> None:
        self._plan = plan
        self._engine = engine
        self._reads = inputs
        self._rows: pa.Table = None  # where it stands
        self.inputs = plan.inputs
        self.fingerprint = plan.fingerprint
        self.hydration = Hydration()

    async def hydrate(self, as_of: Timestamp, known: pa.Table | None = None) -> pa.Table:
        hydration = self.hydration

        async def read(id: ObjectId, as_of: Timestamp) -> pa.Table:
            rows = await self._reads.rows(id, as_of)
            hydration.rows_read += rows.num_rows
            return rows

        with hydration.running(as_of, 1, sum(self._reads.lines(id, 0, as_of + 1) for id in self.inputs)):
            self._rows = await self._computed(as_of, read) if known is None else known
            hydration.operators_done = 1
        return self._rows

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        return sorted({time for id in self.inputs for time in self._reads.change_times(id, lower, upper)})[:TOGETHER]

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        rows, changes = self._rows, []
        for new in await self._computed_at(times):
            changes.append(await asyncio.to_thread(updates.difference, new, rows))
            rows = new
        self._rows = rows
        return changes

    def close(self) -> None:
        self._rows = None

    async def _computed_at(self, times: Sequence[Timestamp]) -> list[pa.Table]:
        """The rows at each of the times, which do not depend on each other."""
        tasks = [asyncio.ensure_future(self._computed(time, self._reads.rows)) for time in times]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _computed(self, as_of: Timestamp, read: ReadRows) -> pa.Table:
        """Waits for an engine that is away: a dataflow has nobody to tell who could try again."""
        return await compute(self._plan, Bindings(), self._engine, read, as_of, patient=True)
