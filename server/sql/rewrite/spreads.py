"""Computes variances and standard deviations of exact numbers from sums, which are maintained by adding.

    SELECT k, variance(v) FROM t GROUP BY k

becomes a projection of an aggregate with count(v), sum(v) and sum(v * v). Spark's sums have at most 38 digits, so that
an int8 is split into halves, v = high * 2**32 + low, and a numeric with more than 14 digits is not changed: its values
are collected, as are those of floats and of calls with DISTINCT.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from protocol.pgwire.types import INT4, INT8, NUMERIC_PRECISION_MAX, PgType, bare_numeric
from server.sql.columns import NewColumns, free_columns
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Call, Cast, Column, ColumnRef, Expression, Literal, precision, transform, walk
from server.sql.functions.aggregates import COUNT_VALUES, SPREADS
from server.sql.functions.table import FUNCTIONS, GRAMMAR, OPERATORS, Function
from server.sql.relations import Aggregate, Project, Relation

_HALF_BITS = 32
_SUM_DIGITS = 10  # that `sum` adds to the digits of its argument


def spreads_from_sums(relation: Relation) -> Relation:
    """The relation, in which variances and standard deviations are computed from sums where that is possible."""
    if not any(isinstance(node, AggregateCall) and _has_sums(node) for node in walk(relation)):
        return relation
    new = NewColumns(relation)

    def change(node: Any) -> Any | None:
        # Spark supports a correlated subquery only if it has one aggregate.
        if not isinstance(node, Aggregate) or not any(map(_has_sums, node.calls)) or free_columns(node):
            return None
        return _from_sums(replace(node, input=transform(node.input, change)), new)

    return transform(relation, change)


def _has_sums(call: AggregateCall) -> bool:
    if call.function.name not in SPREADS or call.distinct:
        return False
    type = call.arguments[0].type
    if type.name == "numeric":
        return 2 * precision(call.arguments[0]) + _SUM_DIGITS <= NUMERIC_PRECISION_MAX
    return type.name in ("int2", "int4", "int8")


def _from_sums(node: Aggregate, new: NewColumns) -> Project:
    calls: dict[AggregateCall, Column] = {}

    def ref(call: AggregateCall, column: Column | None = None) -> ColumnRef:
        if call not in calls:
            calls[call] = column or new.column("", call)
        return ColumnRef(calls[call])

    results: list[Expression] = []
    for call, column in zip(node.calls, node.columns[len(node.keys) :], strict=True):
        if not _has_sums(call):
            results.append(ref(call, column))
            continue
        (value,) = call.arguments
        count = ref(replace(call, function=COUNT_VALUES, type=INT8, nullable=False, precision=0))
        sums = [ref(replace(_sum(added), filter=call.filter)) for added in _added(value)]
        function = next(f for f in GRAMMAR[SPREADS[call.function.name]] if len(f.arguments) == 1 + len(sums))
        numerics = (each if each.type.name == "numeric" else Cast(each, bare_numeric(0)) for each in sums)
        results.append(Call(function, (count, *numerics), call.type, True, call.precision))
    keys = node.columns[: len(node.keys)]
    below = replace(node, calls=tuple(calls), columns=(*keys, *calls.values()))
    return Project(below, node.columns, (*map(ColumnRef, keys), *results))


def _added(value: Expression) -> list[Expression]:
    """The expressions whose sums are needed: the value and its square; for an int8, its halves and their products.

    The low half is in [-2**31, 2**31), so that no product overflows. All values are shifted by 2**31, which does not
    change their variance.
    """
    if value.type != INT8:
        return [value, _product(value, value)]
    high = _call(">>", value, Literal(_HALF_BITS, INT4))
    low = _call("-", _call("&", value, Literal((1 << _HALF_BITS) - 1, INT8)), Literal(1 << (_HALF_BITS - 1), INT8))
    return [high, low, _product(high, high), _product(high, low), _product(low, low)]


def _product(left: Expression, right: Expression) -> Call:
    if left.type.name != "numeric":
        left, right = (each if each.type == INT8 else Cast(each, INT8) for each in (left, right))
    return _call("*", left, right)


def _call(operator: str, left: Expression, right: Expression) -> Call:
    function = _matching(OPERATORS[operator], left, right)
    return Call(function, (left, right), *_result(function, left, right))


def _sum(value: Expression) -> AggregateCall:
    function = _matching(FUNCTIONS["sum"], value)
    return AggregateCall(function, (value,), *_result(function, value))


def _matching(rows: list[Function], *arguments: Expression) -> Function:
    names = [argument.type.name for argument in arguments]
    return next(row for row in rows if [type.name for type in row.arguments] == names)


def _result(function: Function, *arguments: Expression) -> tuple[PgType, bool, int]:
    """The type of a call, whether it can be NULL, and its precision."""
    if function.shape is None:
        return function.result, True, 0
    shape = function.shape(arguments)
    return bare_numeric(shape.scale), True, shape.precision
