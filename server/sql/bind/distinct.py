"""DISTINCT and DISTINCT ON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.keys import groupable
from server.sql.bind.select_list import Item, projection
from server.sql.bind.terms import output_term
from server.sql.columns import equivalent
from server.sql.expressions import ColumnRef, Expression, SortKey, Subquery, contains
from server.sql.relations import Distinct, Relation, Sort
from server.sql.scope import Scope


def distinct_on(binder: Binder, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[Expression] | None:
    """The keys of DISTINCT ON; None if it is absent."""
    if tree is None or tree.args.get("on") is None:
        return None
    on = tree.args["on"]
    if isinstance(on, exp.Tuple) and not on.expressions:
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"')
    terms = on.expressions if isinstance(on, exp.Tuple) else [on]
    keys: list[Expression] = []
    for term in terms:
        key = output_term(binder, term, items, scope, "SELECT DISTINCT ON")
        groupable(binder, key, term)
        if not any(_is_same(key, other) for other in keys):
            keys.append(key)
    return keys


def check_distinct_on(binder: Binder, on: Sequence[Expression], order: Sequence[SortKey], tree: exp.Expr) -> None:
    """42P10 if ORDER BY does not begin with the keys."""
    leading = [key.expression for key in order[: len(on)]]
    if any(not any(_is_same(e, key) for key in on) for e in leading):
        message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree.args["distinct"]))


def distinct_rows(
    binder: Binder, relation: Relation, items: Sequence[Item], order: Sequence[SortKey], tree: exp.Expr
) -> Relation:
    """SELECT DISTINCT: the items without duplicates, sorted. 42P10 if a sort key is not an item."""
    project = projection(binder, relation, items)
    for item in items:
        groupable(binder, item.expression, item.tree)
    keys = []
    for key in order:
        for item, column in zip(items, project.columns, strict=True):
            if _is_same(key.expression, item.expression):
                keys.append(replace(key, expression=ColumnRef(column)))
                break
        else:
            message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree.args["order"]))
    distinct = Distinct(project)
    return Sort(distinct, tuple(keys)) if keys else distinct


def _is_same(key: Expression, other: Expression) -> bool:
    """Whether two expressions are equal. Each occurrence of a subquery has columns of its own."""
    return key == other or (contains(key, Subquery) and equivalent(other, key))
