"""DISTINCT and DISTINCT ON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.keys import groupable
from server.sql.bind.select_list import Item, projection
from server.sql.bind.terms import output_term
from server.sql.columns import equivalent
from server.sql.expressions import Column, ColumnRef, Expression, SortKey, Subquery, contains
from server.sql.grammar.lexer import TARGETS_MAX, too_many_targets
from server.sql.relations import Distinct, Relation, Sort
from server.sql.scope import Scope


def distinct_on(binder: Binder, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[Expression] | None:
    """The keys of DISTINCT ON; None if it is absent. 54011 if they are too many."""
    if tree is None or tree.args.get("on") is None:
        return None
    on = tree.args["on"]
    if isinstance(on, exp.Tuple) and not on.expressions:
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"')
    terms = on.expressions if isinstance(on, exp.Tuple) else [on]
    keys: dict[Expression, None] = {}
    for term in terms:
        key = output_term(binder, term, items, scope, "SELECT DISTINCT ON")
        groupable(binder, key, term)
        if _same_in(keys, key) is None:
            keys[key] = None
        if len(keys) > TARGETS_MAX:
            raise too_many_targets()
    return list(keys)


def check_distinct_on(binder: Binder, on: Sequence[Expression], order: Sequence[SortKey], tree: exp.Expr) -> None:
    """42P10 if ORDER BY does not begin with the keys."""
    keys = dict.fromkeys(on)
    if any(_same_in(keys, key.expression) is None for key in order[: len(on)]):
        message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree.args["distinct"]))


def distinct_rows(
    binder: Binder, relation: Relation, items: Sequence[Item], order: Sequence[SortKey], tree: exp.Expr
) -> Relation:
    """SELECT DISTINCT: the items without duplicates, sorted. 42P10 if a sort key is not an item."""
    project = projection(binder, relation, items)
    for item in items:
        groupable(binder, item.expression, item.tree)
    columns: dict[Expression, Column] = {}
    for item, column in zip(items, project.columns, strict=True):
        columns.setdefault(item.expression, column)
    keys = []
    for key in order:
        same = _same_in(columns, key.expression)
        if same is None:
            message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree.args["order"]))
        keys.append(replace(key, expression=ColumnRef(columns[same])))
    distinct = Distinct(project)
    return Sort(distinct, tuple(keys)) if keys else distinct


def _same_in(known: Mapping[Expression, object], key: Expression) -> Expression | None:
    """The equal expression among the keys of `known`, if any. Each occurrence of a subquery has columns of its own."""
    if key in known:
        return key
    return next((other for other in known if equivalent(other, key)), None) if contains(key, Subquery) else None
