"""Computes the generated columns of new rows and checks their CHECK constraints.

Few rows are computed as constants, many by Spark (`computed_columns`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from server.execution.volatile import CONSTANT_ROWS_MAX, computed_columns
from server.runtime.offload import offload
from server.session_state.constraints import check_violation
from server.session_state.context import Context
from server.sql.constant import Bindings, NotCheap
from server.sql.functions.worker import scalar_values
from server.sql.grammar.checkpoint import checkpoint
from server.sql.row_rules import RowCondition, RowRules, Rule, violated


async def check_rows(context: Context, table: Table, rules: RowRules, rows: pa.Table, given: Iterable[int]) -> None:
    """PgError 23514 for the first of the rows that violates a CHECK constraint. The columns are c0, c1, ...

    `given`: the numbers of the columns to which the statement gives values.
    """
    found = await first_violation(context, rules, rows)
    if found is not None:
        number, rule = found
        raise check_violation(context, table, rule, rows.slice(number, 1), given)


async def first_violation(context: Context, rules: RowRules, rows: pa.Table) -> tuple[int, Rule] | None:
    """The number of the first row that violates a CHECK constraint, and the constraint."""
    if not rules.checks or rows.num_rows == 0:
        return None
    if rows.num_rows <= CONSTANT_ROWS_MAX:
        with contextlib.suppress(NotCheap):
            return await offload("", _first_violation_of_few, rules, rows)
    expressions = [expression for _, expression in rules.checks]
    results = await computed_columns(context, rules.columns, expressions, rows, context.bindings())
    found = []
    for (rule, _), holds in zip(rules.checks, results.columns, strict=True):
        number = pc.index(holds, False).as_py()
        if number >= 0:
            found.append((number, rule))
    return min(found, key=lambda pair: pair[0], default=None)  # of one row, the first rule


def violated_by_some_row(context: Context, table: Table, rule: Rule) -> PgError:
    """The error if a row that a table already has violates a constraint."""
    return PgError(
        SqlState.CHECK_VIOLATION,
        f'check constraint "{rule.name}" of relation "{table.name}" is violated by some row',
        schema_name=context.state.schemas[table.schema_id].name,
        table_name=table.name,
        constraint_name=rule.name,
    )


def contains_nulls(context: Context, table: Table, column: str) -> PgError:
    """The error if a column of a table already has a NULL."""
    return PgError(
        SqlState.NOT_NULL_VIOLATION,
        f'column "{column}" of relation "{table.name}" contains null values',
        schema_name=context.state.schemas[table.schema_id].name,
        table_name=table.name,
        column_name=column,
    )


def _first_violation_of_few(rules: RowRules, rows: pa.Table) -> tuple[int, Rule] | None:
    """As `first_violation`, without Spark. Raises NotCheap if that is not possible."""
    conditions = rules.conditions()
    if conditions is None:
        raise NotCheap
    columns = [scalar_values(column.type, rows.column(n)) for n, column in enumerate(rules.columns)]
    for number, row in enumerate(zip(*columns, strict=True)):
        checkpoint()
        if (rule := violated(conditions, Bindings(), row)) is not None:
            return number, rule
    return None


async def met(context: Context, condition: RowCondition, rows: pa.Table) -> pa.Array:
    """Whether each of the rows, whose columns are c0, c1, ..., meets a condition. Never NULL."""
    results = await computed_columns(context, condition.columns, [condition.expression], rows, context.bindings())
    (holds,) = results.columns
    if isinstance(holds, pa.ChunkedArray):
        holds = pa.concat_arrays(holds.chunks) if holds.num_chunks else pa.array([], pa.bool_())
    return pc.fill_null(holds, False)


async def with_generated(context: Context, rules: RowRules, rows: pa.Table) -> pa.Table:
    """The rows with the values of generated columns."""
    if not rules.generated or rows.num_rows == 0:
        return rows
    expressions = [expression for _, expression in rules.generated]
    results = await computed_columns(context, rules.columns, expressions, rows, context.bindings())
    for (number, _), values in zip(rules.generated, results.columns, strict=True):
        rows = rows.set_column(number, rows.schema.names[number], values.cast(rows.schema.types[number]))
    return rows
