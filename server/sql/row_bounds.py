"""The bounds of LIMIT, OFFSET and FETCH: numbers of rows, which depend on no row of the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT8
from server.sql.coerce import INT8_MAX
from server.sql.constant import Bindings, NotCheap
from server.sql.expressions import Call, Case, Expression, Literal, Parameter, SessionValue, contains, transform
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS, Function, Nulls, fail
from server.sql.row_expressions import compiled_row_expression

_STATES = {
    "LIMIT": SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE,
    "OFFSET": SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE,
}
_NEGATIVE = {
    clause: Function("negative_bound", (), INT8, fail(state, f"{clause} must not be negative"), nulls=Nulls.MAYBE)
    for clause, state in _STATES.items()
}
(_GREATER,) = (o for o in OPERATORS[">"] if o.arguments == (INT8, INT8))
(_MINUS,) = (o for o in OPERATORS["-"] if o.arguments == (INT8, INT8))

Bind = Callable[[Parameter | SessionValue], Expression | str]


def check_not_negative(value: int, clause: str) -> None:
    """2201W or 2201X for a negative number."""
    if value < 0:
        raise PgError(_STATES[clause], f"{clause} must not be negative")


def within(
    number: Expression, rank: Expression, limit: Expression | None, offset: Expression | None
) -> list[Expression]:
    """The conditions for the rows of LIMIT and OFFSET, over the row number and its bigint `rank`, which ties share.

    They raise the error of `check_not_negative`.
    """
    start, count = _checked(offset, "OFFSET"), _checked(limit, "LIMIT")
    tests = []
    if start is not None:
        start = Call(syntax.COALESCE, (start, Literal(0, INT8)), INT8, False)
        tests.append(greater(number, start))
    if count is not None:
        beyond = greater(rank if start is None else Call(_MINUS, (rank, start), INT8, True), count)
        if isinstance(limit, Literal) and (offset is None or isinstance(offset, Literal)):
            last = min(limit.value + (offset.value or 0 if offset else 0), INT8_MAX)
            beyond = greater(rank, Literal(last, INT8))
        inside = Call(syntax.NOT, (beyond,), BOOL, True)
        unbound = Call(syntax.IS_NULL, (count,), BOOL, False)
        tests.append(Call(syntax.OR, (unbound, inside), BOOL, True) if count.nullable else inside)
    return tests


def _checked(value: Expression | None, clause: str) -> Expression | None:
    """The value, wrapped to raise the error of `check_not_negative`; None for no bound."""
    if value is None or (isinstance(value, Literal) and value.value is None):
        return None
    if isinstance(value, Literal):
        return value
    return Case(((greater(Literal(0, INT8), value), Call(_NEGATIVE[clause], (), INT8, True)),), value, INT8)


def greater(a: Expression, b: Expression) -> Expression:
    """The condition a > b for two bigint expressions."""
    return Call(_GREATER, (a, b), BOOL, a.nullable or b.nullable)


def evaluated(bound: Expression, bind: Bind | None = None) -> Expression:
    """The bound as a literal, or unchanged if a value that it needs is not known yet, or if it `is_costly`.

    `bind` returns the values of parameters and session values, as literals if they are known. PgError.
    """
    known = bound if bind is None else transform(bound, _values(bind))
    evaluate = None if contains(known, Parameter) else compiled_row_expression(known, {})
    if evaluate is None:
        return bound
    try:
        return Literal(evaluate(Bindings(), ()), INT8)
    except NotCheap:  # a long value
        return bound


def is_costly(bound: Expression | None) -> bool:
    """Whether `evaluated` never returns a literal, whatever the values of parameters and session values are."""
    if bound is None:
        return False
    return compiled_row_expression(transform(bound, _values(lambda part: Literal(None, part.type))), {}) is None


def _values(bind: Bind) -> Callable[[Any], Any]:
    def value(node: Any) -> Any:
        if not isinstance(node, Parameter | SessionValue):
            return None
        bound = bind(node)
        return bound if isinstance(bound, Literal) else node

    return value
