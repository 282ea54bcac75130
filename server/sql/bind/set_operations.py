"""UNION, INTERSECT and EXCEPT, and parenthesized queries."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql import expressions as ex
from server.sql.bind.binder import Binder, query_form
from server.sql.bind.common_tables import with_common_tables
from server.sql.bind.keys import groupable
from server.sql.bind.order import ordered_output
from server.sql.bind.outputs import output_expressions, with_outputs
from server.sql.expressions import Column, Expression
from server.sql.relations import Relation, SetKind, SetOperation
from server.sql.scope import Scope, alone

_SET_KINDS: dict[type[exp.Expr], SetKind] = {
    exp.Union: SetKind.UNION,
    exp.Intersect: SetKind.INTERSECT,
    exp.Except: SetKind.EXCEPT,
}


@query_form(*_SET_KINDS)
def set_operation(binder: Binder, tree: exp.SetOperation, scope: Scope, keep_unknown: bool) -> Relation:
    """Casts the columns of both sides to their common types. 42601 if the numbers of columns differ, 42804."""
    scope = with_common_tables(binder, tree, scope)
    if tree.args.get("by_name") or tree.args.get("side") or tree.args.get("kind") or tree.args.get("on"):
        raise binder.unsupported(
            "this set operation", tree, hint="Write both queries with the same columns in the same order."
        )
    kind = _SET_KINDS[type(tree)]
    if isinstance(tree.this, exp.Select) and any(tree.this.args.get(k) for k in ("order", "limit", "offset")):
        raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{kind}"')  # requires parentheses
    left = binder.query(tree.this, alone(scope), keep_unknown=True)
    right = binder.query(tree.expression, alone(scope), keep_unknown=True)
    if len(left.columns) != len(right.columns):
        message = f"each {kind} query must have the same number of columns"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree.expression))
    left_outputs, right_outputs = output_expressions(left), output_expressions(right)
    sides: tuple[list[Expression], list[Expression]] = ([], [])
    every = not tree.args.get("distinct")
    columns = []
    for a, b, column in zip(left_outputs, right_outputs, left.columns, strict=True):
        common, (x, y) = binder.to_common([a, b], str(kind), binder.at(tree.expression))
        if kind is not SetKind.UNION or not every:
            groupable(binder, x, tree, by_keys=not every)
        sides[0].append(x)
        sides[1].append(y)
        columns.append(
            Column(
                binder.new_id(),
                column.name,
                common,
                x.nullable or y.nullable,
                (common.scale is not None and 38) or 0,
            )
        )
    if any(c.type.name == "numeric" for c in columns):  # both sides need decimals of the same precision
        for side in sides:
            for i, c in enumerate(columns):
                if c.type.name == "numeric" and ex.precision(side[i]) != 38:
                    side[i] = ex.Cast(side[i], c.type)
    left = with_outputs(binder, left, sides[0])
    right = with_outputs(binder, right, sides[1])
    relation: Relation = SetOperation(kind, every, left, right, tuple(columns))
    return ordered_output(binder, relation, tree, scope)


@query_form(exp.Subquery)
def bracketed(binder: Binder, tree: exp.Subquery, scope: Scope, keep_unknown: bool) -> Relation:
    """(query) ORDER BY ... LIMIT ..."""
    scope = with_common_tables(binder, tree, scope)
    if tree.args.get("joins"):
        raise binder.unsupported("this query", tree, hint="Write the join as SELECT * FROM (query) AS a JOIN ...")
    relation = binder.query(tree.this, scope, keep_unknown=keep_unknown)
    return ordered_output(binder, relation, tree, scope)
