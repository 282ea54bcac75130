"""Subqueries in expressions: EXISTS, IN (query), scalar subqueries."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INTERVAL
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import operator
from server.sql.bind.connectives import conjunction
from server.sql.bind.outputs import projected
from server.sql.bind.row_values import compared_rows
from server.sql.bind.shapes import row_of
from server.sql.expressions import Aggregate, Call, ColumnRef, Expression, Subquery, SubqueryKind, WindowCall, walk
from server.sql.functions import intervals
from server.sql.relations import Project, Relation
from server.sql.scope import Scope


@form(exp.Exists)
def exists(binder: Binder, tree: exp.Exists, scope: Scope) -> Expression:
    """EXISTS (query)"""
    return Subquery(SubqueryKind.EXISTS, binder.subquery(tree.this, scope), BOOL, False)


@form(exp.Subquery)
def scalar_subquery(binder: Binder, tree: exp.Subquery, scope: Scope) -> Expression:
    """(query) as a value: that of its single row, NULL if it has none. 42601 for more than one column."""
    relation = binder.subquery(tree, scope)
    if len(relation.columns) != 1:
        message = "subquery must return only one column"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    column = relation.columns[0]
    return Subquery(SubqueryKind.SCALAR, relation, column.type, True, precision=column.precision)


def in_query(binder: Binder, left: exp.Expr, query: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
    """left IN (query), of values or rows. 42883, 42601."""
    relation = binder.subquery(query, scope)
    fields = row_of(left)
    operands = [binder.expression(e, scope) for e in (fields if fields is not None else [left])]
    check_width_of_query(binder, len(operands), relation, tree)
    refs: list[Expression] = [ColumnRef(column) for column in relation.columns]
    sides = [operator(binder, "=", [a, b], tree) for a, b in zip(operands, refs, strict=True)]
    typed, casts = [], []
    for side in sides:
        assert isinstance(side, Call)
        if side.function.spark is not None and not isinstance(side.function.spark, str):
            _common, coerced = binder.to_common(side.arguments, "IN")
            typed.append(coerced[0])
            casts.append(coerced[1])
        else:
            typed.append(side.arguments[0])
            casts.append(side.arguments[1])
        if casts[-1].type == INTERVAL:
            typed[-1], casts[-1] = intervals.length_of(typed[-1]), intervals.length_of(casts[-1])
    rows = projected(binder, relation, casts)
    holders = tuple(binder.new_column("", operand) for operand in typed)
    pairs = zip(holders, rows.columns, strict=True)
    test = conjunction([operator(binder, "=", [ColumnRef(a), ColumnRef(b)], tree) for a, b in pairs])
    return Subquery(SubqueryKind.IN, rows, BOOL, True, tuple(typed), holders=holders, test=test)


def row_subquery(binder: Binder, name: str, tree: exp.Expr, query: exp.Subquery, scope: Scope) -> Expression:
    """(a, b) = (query): the comparison with its single row; NULL if it has none."""
    relation = binder.subquery(query, scope)
    operands = [binder.expression(field, scope) for field in row_of(tree.this) or ()]
    check_width_of_query(binder, len(operands), relation, tree)
    if any(isinstance(node, (Aggregate, WindowCall)) for operand in operands for node in walk(operand)):
        raise binder.unsupported(
            "a row of aggregates compared with a subquery",
            tree,
            hint="Compute the aggregates in a subquery in FROM, and compare its columns.",
        )
    pairs = list(zip(operands, map(ColumnRef, relation.columns), strict=True))
    test = compared_rows(binder, name, pairs, tree)
    rows = Project(relation, (binder.new_column("", test),), (test,))
    return Subquery(SubqueryKind.SCALAR, rows, BOOL, True)


def check_width_of_query(binder: Binder, wanted: int, relation: Relation, tree: exp.Expr) -> None:
    """42601 if the query does not have `wanted` columns."""
    if wanted != len(relation.columns):
        few = "few" if len(relation.columns) < wanted else "many"
        raise PgError(SqlState.SYNTAX_ERROR, f"subquery has too {few} columns", position=binder.at(tree))
