"""Detects operators that need only the first rows in an order, of all rows or of each key (LIMIT, top n)."""

from __future__ import annotations

from server.dataflow.plan.nodes import TopK
from server.sql.columns import ids, with_values
from server.sql.conditions import parts
from server.sql.expressions import Call, Cast, ColumnRef, Expression, Literal, SortKey
from server.sql.functions import syntax
from server.sql.functions.table import INTEGERS, OPERATORS
from server.sql.relations import Filter, Limit, Project, Relation, Sort, Unnest, Window, inputs_of

ORDERED = frozenset(  # types whose order is that of `hashing.order_codes`
    ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bytea", "uuid", "date", "time",
     "timestamp", "timestamptz")
)  # fmt: skip


def top_k_by_order(key: SortKey, input: Relation, count: int) -> TopK | None:
    """A `TopK` of `count` rows by the first column of an ORDER BY. None if rows cannot be looked up in its order."""
    if not isinstance(key.expression, ColumnRef) or key.expression.type.representation not in ORDERED:
        return None
    column = [c.id for c in input.columns].index(key.expression.column.id)
    return TopK(column, key.descending, key.nulls_first, count)


def top_k_by_limit(node: Limit) -> TopK | None:
    """A `TopK` for LIMIT and OFFSET over ORDER BY. None if they are not constant, or as in `top_k_by_order`."""
    limit, offset = _number(node.limit), 0 if node.offset is None else _number(node.offset)
    if not isinstance(node.input, Sort) or not node.input.keys or limit is None or offset is None:
        return None
    return top_k_by_order(node.input.keys[0], node.input.input, limit + offset)


def top_k_by_row_number(base: Window, relation: Relation) -> TopK | None:
    """A `TopK` if conditions above a window keep only rows up to some row_number or rank of each partition."""
    first = base.calls[0]
    if not first.order or not all(isinstance(key, ColumnRef) for key in first.partition):
        return None
    numbers = ("row_number", "rank")
    for call in base.calls:
        alike = call.partition == first.partition and call.order[:1] == first.order[:1]
        if call.call.function.name not in numbers or not alike:
            return None
    known = ids(base.columns[len(base.input.columns) :])
    bounds = [bound for condition in _conditions(relation, base) if (bound := _upper_bound(condition, known))]
    return top_k_by_order(first.order[0], base.input, min(bounds)) if bounds else None


def _conditions(relation: Relation, base: Relation) -> list[Expression]:
    """The conditions of the filters from `relation` down to `base`, as expressions over the columns of `base`."""
    if relation is base:
        return []
    match relation:
        case Filter(input=input, predicate=predicate):
            values, below = _values_of(input, base), _conditions(input, base)
            return [*below, *(with_values(part, values) for part in parts(predicate))]
        case Project(input=input) | Unnest(input=input):
            return _conditions(input, base)
    return []


def _values_of(relation: Relation, base: Relation) -> dict[int, Expression]:
    """The relation's columns, by id, as expressions over the columns of `base`."""
    if relation is base:
        return {}
    (input,) = inputs_of(relation)
    below = _values_of(input, base)
    if not isinstance(relation, Project):
        return below
    return {c.id: with_values(e, below) for c, e in zip(relation.columns, relation.expressions, strict=True)}


def _upper_bound(condition: Expression, columns: set[int]) -> int | None:
    """The greatest value of one of `columns` that satisfies the condition, at least 1. None if there is no bound."""
    match condition:
        case Call(function=syntax.NOT, arguments=(Call(function=function, arguments=(left, right)),)):
            name = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}.get(function.name)
        case Call(function=function, arguments=(left, right)):
            name = function.name
        case _:
            return None
    if name in (">", ">="):
        left, right, name = right, left, {">": "<", ">=": "<="}[name]
    value = _number(right)
    if name == "=" and value is None:
        left, right, value = right, left, _number(left)
    column = left.operand if isinstance(left, Cast) else left
    if not isinstance(column, ColumnRef) or column.column.id not in columns or value is None:
        return None
    return {"<=": max(value, 1), "<": max(value - 1, 1), "=": max(value, 1)}.get(name or "")


def _number(expression: Expression | None) -> int | None:
    """The value of an integer expression, if it is known at planning time."""
    match expression:
        case Literal(value=int() as value) if not isinstance(value, bool):
            return value
        case Cast(operand=operand, type=type) if type.name in INTEGERS:
            return _number(operand)
        case Call(function=function, arguments=(operand, *_)) if function is syntax.COALESCE:
            return _number(operand)
        case Call(function=function, arguments=(left, right)) if function in OPERATORS["+"]:
            numbers = (_number(left), _number(right))
            return None if None in numbers else sum(n for n in numbers if n is not None)
    return None
