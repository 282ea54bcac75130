"""INSERTs of many literal rows: the first row is planned as a query, and all rows become Arrow columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from catalog.objects.tables import Table
from protocol.pgwire.decode import BadValue
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.sql.bind import PlanContext
from server.sql.grammar.literal_rows import LiteralRows
from server.sql.grammar.parse import parse_each
from server.sql.grammar.statements.writes import Insert
from server.sql.writes.plan import WritePlan
from server.sql.writes.planner import planned_insert


def plan_literals(statement: Insert, rows: LiteralRows, context: PlanContext) -> WritePlan:
    """Plans the INSERT of `rows`. If a value needs a cast, the whole statement is parsed and planned value by value."""
    plan = _plan_row(rows, 0, context)
    if statement.overriding == "user":  # identity columns ignore the values
        return _plan_each_value(rows, context)
    table = context.state.items[plan.table]
    assert isinstance(table, Table)
    names = {column.name: number for number, column in enumerate(plan.target.relation.columns)}
    named = [names[column.name] for column in statement.columns] or range(len(names))
    literals: dict[int, pa.ChunkedArray | None] = {}
    bad_rows: list[int] = []
    targets = plan.target.in_table(named)
    if any(parse_type(table.columns[target].type).second_digits is not None for target in targets):
        return _plan_each_value(rows, context)
    for number, name in zip(range(rows.raw.num_columns), named, strict=False):
        target = plan.target.numbers[name]
        assert target is not None  # the first row could be planned
        try:
            literals[target] = rows.column(
                number, parse_type(table.columns[target].type), context.timezone, context.input_style
            )
        except BadValue as error:
            bad_rows.append(error.row)
    needs_casts = any(values is None for values in literals.values())
    if bad_rows and not needs_casts:
        _plan_row(rows, min(bad_rows), context)  # raises the error with the value's position
    if bad_rows or needs_casts:
        return _plan_each_value(rows, context)
    return replace(
        plan, added=None, literals={target: values for target, values in literals.items() if values is not None}
    )


def _plan_each_value(rows: LiteralRows, context: PlanContext) -> WritePlan:
    (whole,) = parse_each(rows.text)
    assert isinstance(whole, Insert)
    return planned_insert(whole, context)


def _plan_row(rows: LiteralRows, number: int, context: PlanContext) -> WritePlan:
    """Plans an INSERT of one of the rows. The position of a PgError is in the whole text."""
    text, shift = rows.row(number)
    (statement,) = parse_each(text)
    assert isinstance(statement, Insert)
    try:
        return planned_insert(statement, context)
    except PgError as error:
        if error.position is not None and error.position > len(rows.head):
            error.position += shift
        raise
