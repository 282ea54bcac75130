"""A total order of rows wherever a result depends on it: a step must retract exactly what an earlier one emitted.

LIMIT, DISTINCT ON and row_number order rows with equal sort keys by all their columns, ascending. Sums and averages of
floats in windows add the values in order of size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.pgwire.types import BYTEA
from server.sql.columns import NewColumns
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Call, Column, ColumnRef, Expression, SortKey, WindowCall
from server.sql.functions.aggregates import ORDER_FREE
from server.sql.functions.table import Function
from server.sql.relations import Aggregate, DistinctOn, Limit, Project, Relation, Sort, Window, bottom_up
from server.sql.rewrite.frames import frames_settled

# The result depends on the row's position, also among peers.
_BY_PLACE = frozenset(("row_number", "ntile", "lag", "lead"))
_BYTES = Function("bytes_of", (), BYTEA, "{0}")
_FLOAT_BYTES = Function("bytes_of", (), BYTEA, "CAST({0} AS STRING)")
_SEVERAL_FORMS = ("interval", "float4", "float8", "bpchar")  # equal values may have different bytes


def ordered(relation: Relation) -> Relation:
    new = NewColumns(relation)
    return bottom_up(relation, lambda node: _changed(node, new))


def _changed(node: Relation, new: NewColumns) -> Relation:
    match node:
        case Limit(input=Sort(input=input, keys=keys) as sort):
            return replace(node, input=replace(sort, keys=_total(keys, input.columns)))
        case Limit(input=Project(input=Sort(input=input, keys=keys) as sort) as project):
            return replace(node, input=replace(project, input=replace(sort, keys=_total(keys, input.columns))))
        case Limit(input=input):
            return replace(node, input=Sort(input, _total((), input.columns)))
        case DistinctOn(input=input, keys=keys, order=order):
            first = order or tuple(SortKey(key, False, False) for key in keys)
            return replace(node, order=_total(first, input.columns))
        case Window(input=input, calls=calls):
            placed = replace(node, calls=tuple(_window(call, input.columns) for call in calls))
            return frames_settled(placed, lambda call: _total(call.order, input.columns), new)
        case Aggregate(calls=calls):
            return replace(node, calls=tuple(map(_aggregate, calls)))
    return node


def _total(keys: Sequence[SortKey], columns: Sequence[Column]) -> tuple[SortKey, ...]:
    """The keys, followed by sort keys that distinguish all rows that are not identical."""
    total = list(keys)
    for column in columns:
        ref: Expression = ColumnRef(column)
        if all(key.expression != ref for key in keys):
            total.append(SortKey(ref, False, False))
        if column.type.name in _SEVERAL_FORMS:
            form = _FLOAT_BYTES if column.type.name in ("float4", "float8") else _BYTES
            total.append(SortKey(Call(form, (ref,), BYTEA, column.nullable), False, False))
    return tuple(total)


def _window(call: WindowCall, columns: Sequence[Column]) -> WindowCall:
    call = replace(call, call=_aggregate(call.call))
    if call.call.function.name in _BY_PLACE or call.frame.upper().startswith("ROWS"):
        return replace(call, order=_total(call.order, columns))
    return call


def _aggregate(call: AggregateCall) -> AggregateCall:
    function = ORDER_FREE.get(call.function)
    return call if function is None else replace(call, function=function)
