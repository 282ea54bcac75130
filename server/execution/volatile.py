"""Evaluates queries that call volatile functions (`server.sql.volatile`)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT2, INT4, INT8
from server.dataflow.runtime.spark_rows import shaped
from server.runtime.threads import in_thread
from server.session_state.context import Context
from server.sql.constant import Bindings, NotCheap, compiled
from server.sql.expressions import Cast, Column, ColumnRef, Expression, Literal, Volatile, transform
from server.sql.functions.worker import scalar_values
from server.sql.plan import QueryPlan, column_factory, relation_plan
from server.sql.relations import Project, Relation, Scan, Values
from server.sql.volatile import (
    LAST_VALUES,
    SEQUENCE_FUNCTIONS,
    Deferred,
    cell_calls,
    deferred,
    ordered,
    with_values,
)

CONSTANT_ROWS_MAX = 200  # more rows are computed by Spark
_ROWS = ObjectId("rows")


async def constant_rows(context: Context, plan: QueryPlan, bindings: Bindings) -> pa.Table:
    """The rows of a constant query. PgError."""
    constant, volatile = plan.constant, plan.volatile
    assert constant is not None
    assert volatile is not None
    with contextlib.suppress(NotCheap):
        return pa.Table.from_batches([constant.evaluate(bindings)])
    await context.volatile.reserve(volatile.calls, len(constant.rows) * len(volatile.calls))
    with contextlib.suppress(NotCheap):
        return pa.Table.from_batches([constant.evaluate(bindings)])
    relation = await _without_cell_calls(context, ordered(plan.relation), bindings)
    divided = deferred(relation, column_factory(relation))
    lower = compiled(relation if divided is None else divided.lower)
    assert lower is not None
    rows = await context.evaluator.evaluate(lower, bindings)
    if divided is None:
        return rows
    return await divided_rows(context, divided, rows, plan, bindings)


async def divided_rows(
    context: Context, divided: Deferred, rows: pa.Table, plan: QueryPlan, bindings: Bindings
) -> pa.Table:
    """The rows of the query `plan`, from those of the lower query. PgError."""
    return await _completed(context, divided.columns, divided.calls, divided.lower.columns, rows, plan, bindings)


async def completed_rows(context: Context, plan: QueryPlan, rows: pa.Table, bindings: Bindings) -> pa.Table:
    """The rows of a divided query, from those of its lower query. PgError."""
    volatile = plan.volatile
    assert volatile is not None
    assert volatile.lower is not None
    columns = volatile.lower.relation.columns
    return await _completed(context, volatile.columns, volatile.calls, columns, rows, plan, bindings)


async def _without_cell_calls(context: Context, relation: Relation, bindings: Bindings) -> Relation:
    """The relation with the values of the calls in the cells of its VALUES."""
    values: dict[int, Any] = {}
    for call in cell_calls(relation):
        arguments = [[await _constant(context, argument, bindings)] for argument in call.arguments]
        array = await context.volatile.column(call, arguments, 1)
        values[call.number] = array[0].as_py()
    return with_values(relation, values)


async def _constant(context: Context, expression: Expression, bindings: Bindings) -> Any:
    column = Column(0, "", expression.type, expression.nullable)
    constant = compiled(Values((column,), ((expression,),)))
    assert constant is not None
    return await context.evaluator.value(constant, bindings)


async def _completed(
    context: Context,
    columns: Sequence[int | Expression],
    calls: Sequence[Volatile],
    lower: Sequence[Column],
    rows: pa.Table,
    plan: QueryPlan,
    bindings: Bindings,
) -> pa.Table:
    names = {column.id: number for number, column in enumerate(lower)}
    values = await _values_of_calls(context, calls, names, rows)
    made = column_factory(plan.relation, *lower)
    known = {call.number: made(call) for call in calls}
    arrays: dict[int, pa.ChunkedArray | pa.Array] = {
        c.id: rows.column(number) for c, number in zip(lower, names.values(), strict=True)
    }
    arrays |= {known[number].id: array for number, array in values.items()}
    every = [*lower, *known.values()]

    def replaced(node: Any) -> Any | None:
        return ColumnRef(known[node.number]) if isinstance(node, Volatile) else None

    found: list[pa.ChunkedArray | pa.Array | None] = []
    others: list[Expression] = []
    for column in columns:
        if isinstance(column, int):
            found.append(rows.column(column))
            continue
        expression = transform(column, replaced)
        found.append(_simple(expression, arrays))
        if found[-1] is None:
            others.append(expression)
    if others:
        table = pa.table([arrays[c.id] for c in every], names=[f"c{n}" for n in range(len(every))])
        computed = iter((await computed_columns(context, every, others, table, bindings)).columns)
        found = [next(computed) if array is None else array for array in found]
    schema = updates.rows_schema([field.type.arrow for field in plan.columns])
    return pa.table([_cast(array, type) for array, type in zip(found, schema.types, strict=True)], schema=schema)


def _cast(array: Any, type: pa.DataType) -> Any:
    return array if array.type == type else array.cast(type)


async def _values_of_calls(
    context: Context, calls: Sequence[Volatile], numbers: Mapping[int, int], rows: pa.Table
) -> dict[int, pa.Array]:
    """The values of each call, by its number. Calls of functions of sequences are evaluated row by row."""
    found: dict[int, pa.Array] = {}
    count = rows.num_rows

    def arguments_of(call: Volatile) -> list[list[Any]]:
        """The values of the call's arguments, by argument and row."""
        arguments = []
        for argument in call.arguments:
            if isinstance(argument, Literal):
                arguments.append([argument.value] * count)
            else:
                assert isinstance(argument, ColumnRef)
                arguments.append(scalar_values(argument.type, rows.column(numbers[argument.column.id])))
        return arguments

    if any(call.name in (*LAST_VALUES, "setval") for call in calls):
        of_sequences = [call for call in calls if call.name in (*LAST_VALUES, *SEQUENCE_FUNCTIONS)]
        found = await context.volatile.values([(call, arguments_of(call)) for call in of_sequences], count)
    for call in calls:
        if call.number in found:
            continue
        if call.name == "nextval" and call.sequence is not None:
            same = [c for c in calls if c.name == "nextval" and c.sequence == call.sequence]
            values = await context.volatile.next_values(call, count * len(same))
            for number, other in enumerate(same):
                found[other.number] = pa.array(values[number :: len(same)])
            continue
        found[call.number] = await context.volatile.column(call, arguments_of(call), count)
    return found


_RANGES = {INT2: (-(2**15), 2**15 - 1, "smallint"), INT4: (-(2**31), 2**31 - 1, "integer")}


def _simple(expression: Expression, arrays: Mapping[int, Any]) -> Any | None:
    """The values of a column, or of its cast from bigint to a smaller integer; None for other expressions."""
    match expression:
        case ColumnRef(column=column):
            return arrays[column.id]
        case Cast(operand=ColumnRef(column=column), type=type) if column.type == INT8 and type in _RANGES:
            least, greatest, name = _RANGES[type]
            bounds = pc.min_max(arrays[column.id]).as_py()
            if bounds["min"] is not None and (bounds["min"] < least or bounds["max"] > greatest):
                raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f"{name} out of range")
            return arrays[column.id].cast(type.arrow)
    return None


async def computed_columns(
    context: Context, columns: Sequence[Column], expressions: Sequence[Expression], table: pa.Table, bindings: Bindings
) -> pa.Table:
    """The values of expressions over the columns of a table: by the evaluator for few rows, else by Spark."""
    made = column_factory(None, *columns)
    outputs = tuple(made(expression) for expression in expressions)
    if table.num_rows <= CONSTANT_ROWS_MAX:
        cells = [
            [Literal(value, column.type) for value in scalar_values(column.type, values)]
            for column, values in zip(columns, table.columns, strict=True)
        ]
        rows = tuple(zip(*cells, strict=True))
        constant = compiled(Project(Values(tuple(columns), rows), outputs, tuple(expressions)))
        if constant is not None:
            return await context.evaluator.evaluate(constant, bindings)
    plan = relation_plan(Project(Scan(_ROWS, tuple(columns)), outputs, tuple(expressions)))
    statement = await in_thread(plan.spark_sql, bindings)
    schema = updates.rows_schema([field.type.arrow for field in plan.columns])
    return shaped(await context.engine.run(statement, {_ROWS: table}), schema)
