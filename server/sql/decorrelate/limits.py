"""LIMIT as a condition on row numbers."""

from __future__ import annotations

from dataclasses import replace

from protocol.pgwire.errors import SqlState
from protocol.pgwire.types import BOOL, INT8
from server.sql.columns import NewColumns
from server.sql.conditions import filtered
from server.sql.expressions import Aggregate, Call, Case, Column, ColumnRef, Expression, Literal, WindowCall
from server.sql.functions import syntax
from server.sql.functions.table import FUNCTIONS, OPERATORS, Function, Nulls, fail
from server.sql.relations import Limit, Project, Relation, Sort, Window, exactly

_NEGATIVE = {
    clause: Function("negative_bound", (), INT8, fail(state, f"{clause} must not be negative"), nulls=Nulls.MAYBE)
    for clause, state in (
        ("LIMIT", SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE),
        ("OFFSET", SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE),
    )
}
(_ROW_NUMBER,) = FUNCTIONS["row_number"]
(_GREATER,) = (o for o in OPERATORS[">"] if o.arguments == (INT8, INT8))
(_PLUS,) = (o for o in OPERATORS["+"] if o.arguments == (INT8, INT8))


def numbered_limit(node: Limit, new: NewColumns, partition: tuple[Column, ...] = ()) -> Relation:
    """LIMIT as a condition on row_number() OVER (PARTITION BY `partition`)."""
    input = node.input
    if isinstance(input, Project):  # a projection commutes with LIMIT
        return replace(input, input=numbered_limit(replace(node, input=input.input), new, partition))
    order = input.keys if isinstance(input, Sort) else ()
    number = Aggregate(_ROW_NUMBER, (), INT8, False)
    call = WindowCall(number, tuple(ColumnRef(c) for c in partition), order, "")
    column = new.column("", number)
    rows = Window(input.input if isinstance(input, Sort) else input, (call,), (*input.columns, column))
    offset = _bound(node.offset, "OFFSET")
    limit = _bound(node.limit, "LIMIT")
    tests: list[Expression] = []
    if offset is not None:
        start = Call(syntax.COALESCE, (offset, Literal(0, INT8)), INT8, False)
        tests.append(greater(ColumnRef(column), start))
    if limit is not None:
        end = limit if offset is None else Call(_PLUS, (limit, start), INT8, True)
        beyond = greater(ColumnRef(column), end)
        inside = Call(syntax.NOT, (beyond,), BOOL, True)
        unbound = Call(syntax.IS_NULL, (limit,), BOOL, False)
        tests.append(Call(syntax.OR, (unbound, inside), BOOL, True) if limit.nullable else inside)
    kept = filtered(rows, tests)
    return exactly(Sort(kept, order) if order and not partition else kept, input.columns)


def _bound(value: Expression | None, clause: str) -> Expression | None:
    """The value, wrapped to raise an error if it is negative; None if there is no bound."""
    if value is None or (isinstance(value, Literal) and value.value is None):
        return None
    if isinstance(value, Literal):
        return value
    negative = greater(Literal(0, INT8), value)
    return Case(((negative, Call(_NEGATIVE[clause], (), INT8, True)),), value, INT8)


def greater(a: Expression, b: Expression) -> Expression:
    """The condition a > b for two bigint expressions."""
    return Call(_GREATER, (a, b), BOOL, a.nullable or b.nullable)
