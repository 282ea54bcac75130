"""Temporal filters: conditions in WHERE that compare mz_now() with an expression of the row.

A temporal filter has the form `mz_now() op e`, with op one of < <= = >= > and e without mz_now(). In a maintained
query, mz_now() is allowed only in temporal filters. A row is in the result at the timestamps t with
`lower <= t < upper`; both bounds depend only on the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, DATE, INT8, TIMESTAMP, TIMESTAMPTZ, PgType
from server.sql.conditions import parts
from server.sql.expressions import Call, Cast, Expression, Literal, SessionValue, walk
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS, SYNTAX, Function, Infinite
from server.sql.infinities import spark_infinity
from server.sql.relations import Filter, Relation

LAST = (1 << 63) - 1  # the greatest timestamp; a row with this `upper` never leaves the result
_MIRRORED = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition mz_now() `operator` `expression`."""

    operator: str
    expression: Expression


def is_now(expression: Expression) -> bool:
    if isinstance(expression, Cast):
        return is_now(expression.operand)
    return isinstance(expression, SessionValue) and expression.name == "mz_now"


_ENDS = (f"CAST(-{LAST} AS BIGINT)", f"{LAST}L")
"""Spark SQL of the milliseconds of -infinity and infinity: before and after all timestamps."""


def _infinite(type: PgType) -> Infinite:
    def form(arguments: Sequence[Expression], texts: Sequence[str]) -> str:
        return f"IF({texts[0]} = {spark_infinity(type)}, {_ENDS[1]}, {_ENDS[0]})"

    return Infinite(lambda value: LAST if value > 0 else -LAST, form)


_FORMS = [
    (type, spark, python)
    for type, spark, python in (
        (DATE, "(CAST(unix_date({0}) AS BIGINT) * 86400000)", lambda days: days * 86_400_000),
        (TIMESTAMP, "unix_millis(CAST({0} AS TIMESTAMP_LTZ))", lambda us: us // 1_000),
        (TIMESTAMPTZ, "unix_millis({0})", lambda us: us // 1_000),
    )
]
_TIMES = {type.name: Function("mz_timestamp", (type,), INT8, spark, python=python) for type, spark, python in _FORMS}
_COMPARED = {
    type.name: Function("compared_with_mz_now", (type,), INT8, spark, python=python, infinite=_infinite(type))
    for type, spark, python in _FORMS
}
SYNTAX["mz_timestamp"] = list(_TIMES.values())
SYNTAX["compared_with_mz_now"] = list(_COMPARED.values())


def in_milliseconds(expression: Expression, *, compared: bool = False) -> Expression:
    """Converts a date or timestamp to milliseconds since 1970.

    `compared`: for a comparison with mz_now(), which is between the infinities. Else these are an error.
    """
    function = (_COMPARED if compared else _TIMES).get(expression.type.name)
    return expression if function is None else Call(function, (expression,), INT8, expression.nullable)


def names_now(node: object) -> bool:
    return any(isinstance(inner, SessionValue) and inner.name == "mz_now" for inner in walk(node))


def bound_of(condition: Expression) -> Bound | None:
    """The bound of a temporal filter; None if the condition is not a temporal filter."""
    if not isinstance(condition, Call) or len(condition.arguments) != 2:
        return None
    left, right = condition.arguments
    for name, mirrored in _MIRRORED.items():
        if condition.function in OPERATORS[name]:
            if is_now(left) and not names_now(right):
                return Bound(name, right)
            if is_now(right) and not names_now(left):
                return Bound(mirrored, left)
    return None


def is_temporal(node: Relation) -> bool:
    return isinstance(node, Filter) and any(bound_of(part) is not None for part in parts(node.predicate))


def is_maintainable(relation: Relation) -> bool:
    """Whether the relation has no session values other than mz_now() in temporal filters."""
    session = [node.name for node in walk(relation) if isinstance(node, SessionValue)]
    filters = sum(
        bound_of(part) is not None
        for node in walk(relation)
        if isinstance(node, Filter)
        for part in parts(node.predicate)
    )
    return session == ["mz_now"] * filters


def check_temporal(relation: Relation) -> None:
    """0A000 if the relation is not maintainable (see `is_maintainable`)."""
    if not is_maintainable(relation):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "cannot materialize call to mz_now()",
            detail="In a maintained query, mz_now() must be alone on one side of a comparison in WHERE.",
            hint="Rewrite the condition as mz_now() < expression, or with <=, =, >= or >, joined to others by AND.",
        )


_CEILING = Function("ceiling", (), INT8, f"CAST(least(greatest(ceil({{0}}), 0), {LAST}) AS BIGINT)")
_BEHIND = Function(
    "behind", (), INT8, f"IF({{0}} >= {LAST}, {LAST}, CAST(least(greatest(floor({{0}}) + 1, 0), {LAST}) AS BIGINT))"
)


def times_of(bounds: Sequence[Bound]) -> tuple[Expression, Expression]:
    """The expressions `lower` and `upper`: a row is visible at t if `lower <= t < upper`. No bound may be NULL.

    `mz_now() >= e`: lower = ceil(e). `> e`: lower = floor(e) + 1. `<= e`: upper = floor(e) + 1. `< e`: upper = ceil(e).
    """
    lower: list[Expression] = [Literal(0, INT8)]
    upper: list[Expression] = [Literal(LAST, INT8)]
    for bound in bounds:
        if bound.operator in (">=", "="):
            lower.append(_call(_CEILING, bound.expression))
        if bound.operator == ">":
            lower.append(_call(_BEHIND, bound.expression))
        if bound.operator in ("<=", "="):
            upper.append(_call(_BEHIND, bound.expression))
        if bound.operator == "<":
            upper.append(_call(_CEILING, bound.expression))
    return _most(syntax.GREATEST, lower), _most(syntax.LEAST, upper)


def is_known(bounds: Sequence[Bound]) -> list[Expression]:
    """The conditions that the bounds are not NULL. A comparison of mz_now() with NULL is never true."""
    return [Call(syntax.IS_NOT_NULL, (b.expression,), BOOL, False) for b in bounds if b.expression.nullable]


def _call(function: Function, expression: Expression) -> Expression:
    return Call(function, (expression,), INT8, expression.nullable)


def _most(function: Function, values: Sequence[Expression]) -> Expression:
    return values[0] if len(values) == 1 else Call(function, tuple(values), INT8, False)
