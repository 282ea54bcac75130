"""Turns (SELECT aggregate FROM ... WHERE inner column = outer expression) into an outer join with a grouped aggregate.

The inner columns become the GROUP BY keys. A missing group means that no rows matched: the value is NULL, or 0 for a
count. `decorrelate` handles all other correlated subqueries. It computes them for the distinct outer values, which
takes three more operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from protocol.pgwire.types import INT8
from server.sql.columns import NewColumns, free_columns, ids, named, with_values
from server.sql.conditions import all_of
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, Subquery, SubqueryKind, transform, walk
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
from server.sql.relations import Aggregate, Filter, JoinKind, Project, Relation, Sort, bottom_up, joined, only
from server.sql.rewrite.semijoins import without_outer

_ODD_GROUPS = ("bpchar", "interval", "json", "jsonb")  # equal values may be in different groups


def scalars_joined(relation: Relation) -> Relation:
    new = NewColumns(relation)
    return bottom_up(relation, lambda node: _changed(node, new))


def _changed(node: Relation, new: NewColumns) -> Relation:
    match node:
        case Project(input=input, expressions=expressions):
            below, changed = _attached(input, expressions, new)
            return node if below is input else replace(node, input=below, expressions=changed)
        case Filter(input=input, predicate=predicate):
            below, (test,) = _attached(input, (predicate,), new)
            return node if below is input else only(Filter(below, test), node.columns)
    return node


def _attached(
    input: Relation, expressions: tuple[Expression, ...], new: NewColumns
) -> tuple[Relation, tuple[Expression, ...]]:
    """The input joined with the aggregates of those subqueries that can be rewritten, and the expressions over it."""
    below = input
    found: list[tuple[Subquery, Expression]] = []

    def change(inner: Any) -> Any | None:
        nonlocal below
        if not isinstance(inner, Subquery):
            return None
        for known, value in found:
            if known == inner:
                return value
        made = _joined(below, inner, ids(input.columns), new)
        if made is None:
            return inner
        below, value = made
        found.append((inner, value))
        return value

    changed = tuple(transform(expression, change) for expression in expressions)
    return below, changed


def _joined(
    below: Relation, subquery: Subquery, outer: set[int], new: NewColumns
) -> tuple[Relation, Expression] | None:
    if subquery.kind is not SubqueryKind.SCALAR:
        return None
    node = subquery.relation
    value: Expression = ColumnRef(node.columns[0])
    while isinstance(node, (Project, Sort)):
        if isinstance(node, Project):
            value = with_values(value, dict(zip((c.id for c in node.columns), node.expressions, strict=True)))
        node = node.input
    if not isinstance(node, Aggregate) or node.keys or named(node.calls) & outer:
        return None
    inner, tests = without_outer(node.input, outer)
    if not tests or free_columns(inner) or any(isinstance(n, Subquery) for n in walk(inner)):
        return None
    keys: list[Expression] = []
    columns: list[Column] = []
    conditions: list[Expression] = []
    for test in tests:
        if not isinstance(test, Call) or test.function not in OPERATORS["="]:
            return None
        number = next((i for i, side in enumerate(test.arguments) if not named(side) & outer), None)
        if number is None or not named(test.arguments[1 - number]) <= outer:
            return None
        key = test.arguments[number]
        if key.type.name in _ODD_GROUPS or key.type.element is not None:
            return None
        column = new.column("key", key)
        keys.append(key)
        columns.append(column)
        sides = list(test.arguments)
        sides[number] = ColumnRef(column)
        conditions.append(replace(test, arguments=tuple(sides)))
    groups = replace(node, input=inner, keys=tuple(keys), columns=(*columns, *node.columns))
    whole = joined(JoinKind.LEFT, below, groups, all_of(conditions))
    there = {c.id: c for c in whole.columns}
    values: dict[int, Expression] = {}
    for column, call in zip(node.columns, node.calls, strict=True):
        ref = ColumnRef(there[column.id])
        values[column.id] = ref if call.nullable else Call(syntax.COALESCE, (ref, Literal(0, INT8)), INT8, False)
    return whole, with_values(value, values)
