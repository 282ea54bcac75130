"""The rows of a plan that Spark computes, including those of its recursive queries with UNION."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa

from catalog import updates
from protocol.pgwire.errors import PgError, SqlState
from server.spark import Runner
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan
from server.sql.recursion import Recursion, seen_view_of, view_of

PREPARED_BYTES_MAX = 16 << 20
"""The size of all inputs, if each of them is small enough for a prepared statement (`SparkBridge`)."""
RECURSIVE_ROWS_MAX = 1_000_000
RECURSIVE_BYTES_MAX = 512 << 20
"""The bounds of the rows of one recursive query, which are in the server's memory."""
ITERATIONS_MAX = 10_000


async def spark_rows(
    plan: QueryPlan, bindings: Bindings, engine: Runner, views: Mapping[str, pa.Table], *, patient: bool = False
) -> pa.Table:
    """The plan's rows over these views of its inputs, with Spark's types. `patient`: as in `Engine.run`.

    54000 if the parameters are too long for one statement, or if a recursive query has too many iterations or rows;
    53200 if its rows are too large. Cancel safety: cancellation stops the statement that runs.
    """
    views = await with_recursive_views(plan, bindings, engine, views, patient=patient)
    return await engine.run(await bound_sql(plan, bindings, small=are_small(views)), views, patient=patient)


async def with_recursive_views(
    plan: QueryPlan, bindings: Bindings, engine: Runner, views: Mapping[str, pa.Table], *, patient: bool = False
) -> Mapping[str, pa.Table]:
    """The views with those of the plan's recursive queries, which its statement reads. As `spark_rows`."""
    if not plan.recursive:
        return views
    views = dict(views)
    for recursion in await _in_thread_if_long(plan, bindings):
        views[view_of(recursion.name)] = await _iterated(recursion, engine, views, patient=patient)
    return views


def are_small(views: Mapping[str, pa.Table]) -> bool:
    """Whether inputs are small enough for a statement that Spark prepares: see `QueryPlan.spark_sql`."""
    return sum(map(updates.size_of, views.values())) <= PREPARED_BYTES_MAX


async def bound_sql(plan: QueryPlan, bindings: Bindings, *, small: bool) -> str:
    """The plan's Spark SQL statement. 54000 if the parameters are too long for one statement."""
    if bindings.are_short:
        return plan.spark_sql(bindings, small=small)
    return await asyncio.to_thread(plan.spark_sql, bindings, small=small)


async def _in_thread_if_long(plan: QueryPlan, bindings: Bindings) -> list[Recursion]:
    return plan.recursions(bindings) if bindings.are_short else await asyncio.to_thread(plan.recursions, bindings)


async def _iterated(recursion: Recursion, engine: Runner, views: Mapping[str, pa.Table], *, patient: bool) -> pa.Table:
    """All rows of a recursive query. `views`: those of the inputs, and of the recursive queries that it contains."""
    schema = updates.rows_schema([column.type.arrow for column in recursion.columns])
    new = shaped(await engine.run(recursion.anchor, views, patient=patient), schema)
    parts, rows, size = [new], new.num_rows, new.nbytes
    for _ in range(ITERATIONS_MAX):
        if not new.num_rows:
            return pa.concat_tables(parts)
        inputs = {**views, view_of(recursion.name): new, seen_view_of(recursion.name): pa.concat_tables(parts)}
        new = shaped(await engine.run(recursion.step, inputs, patient=patient), schema)
        parts.append(new)
        rows, size = rows + new.num_rows, size + new.nbytes
        if rows > RECURSIVE_ROWS_MAX:
            message = f"a recursive query of more than {RECURSIVE_ROWS_MAX} rows"
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
        if size > RECURSIVE_BYTES_MAX:
            detail = f"The rows of a recursive query may have at most {RECURSIVE_BYTES_MAX >> 20} MiB."
            raise PgError(SqlState.OUT_OF_MEMORY, "out of memory", detail=detail)
    raise PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "a recursive query did not end",
        detail=f"It still yields new rows after {ITERATIONS_MAX} iterations.",
        hint="Add a condition to the recursive term that ends the recursion.",
    )


def shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The engine's result cast to `schema`. The column that Spark returns for a plan without columns is dropped."""
    if table.schema.equals(schema):
        return table
    if not schema.names:
        return table.select([])
    if table.schema.types == schema.types:
        return pa.table(table.columns, schema=schema)
    return table.rename_columns(schema.names).cast(schema)
