"""A planned query as the dataflows see it: its rows at a time, computed by the engine from the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from server.spark import Engine
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan

ReadRows = Callable[[ObjectId, Timestamp], Awaitable[pa.Table]]
ChangeTimes = Callable[[ObjectId, int, int], list[Timestamp]]


async def compute(
    plan: QueryPlan, bindings: Bindings, engine: Engine, read: ReadRows, as_of: Timestamp, *, patient: bool = False
) -> pa.Table:
    """The query's rows at `as_of` as c0, c1, ...; without Spark where nothing is to be computed.

    `patient`: as in `Engine.run`.
    """
    views: dict[str, pa.Table] = {id: await read(id, as_of) for id in plan.inputs}
    schema = updates.rows_schema([field.type.arrow for field in plan.columns])
    if plan.direct_scan is not None:
        return plan.direct_scan.rows(views[plan.direct_scan.source], bindings).rename_columns(schema.names)
    return shaped(await engine.run(plan.spark_sql(bindings), views, patient=patient), schema)


def shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """What the engine gave, with the columns that the plan has; for a plan without columns Spark has one of its own."""
    return table.rename_columns(schema.names).cast(schema) if schema.names else table.select([])


class QueryComputation:
    """A maintained query: its parameters are bound, nothing depends on the session or the clock."""

    def __init__(self, plan: QueryPlan, engine: Engine, read: ReadRows, change_times: ChangeTimes) -> None:
        self._plan = plan
        self._engine = engine
        self._read = read
        self._change_times = change_times
        self.inputs = plan.inputs
        self.fingerprint = plan.fingerprint

    async def rows(self, as_of: Timestamp) -> pa.Table:
        """Waits for an engine that is away: a dataflow has nobody to tell who could try again."""
        return await compute(self._plan, Bindings(), self._engine, self._read, as_of, patient=True)

    def change_times(self, lower: int, upper: int) -> list[Timestamp]:
        return sorted({time for id in self.inputs for time in self._change_times(id, lower, upper)})
