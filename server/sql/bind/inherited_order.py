"""The order of a subquery in FROM as the order of the values that an aggregate collects.

    SELECT array_agg(k) FROM (SELECT k FROM t ORDER BY n) AS s      array_agg(k ORDER BY n)

PostgreSQL's aggregates collect values in the order in which the rows arrive. A dataflow and Spark have no such order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from server.sql.bind.aggregates import ORDER_MATTERS
from server.sql.bind.binder import Binder
from server.sql.expressions import Aggregate, Column, ColumnRef, Expression, SortKey, transform
from server.sql.relations import Filter, Limit, Project, Relation, Sort


def with_order(binder: Binder, relation: Relation) -> tuple[Relation, tuple[SortKey, ...]]:
    """The relation of FROM and the order of its rows; no keys if they have none.

    The relation may have additional columns at its end, which the keys name.
    """
    match relation:
        case Limit(input=input) | Filter(input=input):
            below, keys = with_order(binder, input)
            return (replace(relation, input=below), keys) if keys else (relation, ())
        case Sort(keys=keys):
            return relation, keys
        case Project(input=Sort(keys=keys)):
            return with_keys(binder, relation, keys)
        case Project(input=Limit() | Project()):
            below, keys = with_order(binder, relation.input)
            return with_keys(binder, replace(relation, input=below), keys) if keys else (relation, ())
    return relation, ()


def with_keys(binder: Binder, project: Project, keys: Sequence[SortKey]) -> tuple[Project, tuple[SortKey, ...]]:
    """The projection with the keys among its columns."""
    columns, expressions = list(project.columns), list(project.expressions)
    found = []
    for key in keys:
        if key.expression not in expressions:
            columns.append(binder.new_column("", key.expression))
            expressions.append(key.expression)
        column: Column = columns[expressions.index(key.expression)]
        found.append(replace(key, expression=ColumnRef(column)))
    return replace(project, columns=tuple(columns), expressions=tuple(expressions)), tuple(found)


def ordered(expression: Expression, level: int, keys: tuple[SortKey, ...]) -> Expression:
    """The expression with the order in the aggregates of this query level that depend on one and have none."""

    def change(node: Any) -> Any | None:
        if not isinstance(node, Aggregate) or node.level != level or node.order or node.distinct:
            return None
        return replace(node, order=keys) if node.function.name in ORDER_MATTERS else None

    return transform(expression, change)
