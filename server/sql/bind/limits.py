"""LIMIT, OFFSET and FETCH."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8, UNKNOWN
from server.sql.bind.binder import Binder
from server.sql.bind.connectives import conjunction
from server.sql.coerce import ASSIGNMENT
from server.sql.expressions import Aggregate, ColumnRef, Expression, Literal, WindowCall, contains
from server.sql.functions import resolve
from server.sql.relations import Filter, Limit, Project, Relation, Sort, Window
from server.sql.row_bounds import check_not_negative, within
from server.sql.scope import Scope, in_clause
from server.sql.volatile import calls_in, unplaced


def limited(binder: Binder, relation: Relation, tree: exp.Expr, scope: Scope) -> Relation:
    """The relation with the query's LIMIT, OFFSET or FETCH. 42804, 42P10, 2201W, 2201X."""
    limit_tree, offset_tree = tree.args.get("limit"), tree.args.get("offset")
    limit = offset = None
    if isinstance(limit_tree, exp.Fetch):
        options = limit_tree.args.get("limit_options")
        if options is not None and options.args.get("percent"):
            raise binder.unsupported(
                "FETCH ... PERCENT", tree, hint="Give a number of rows, or filter by percent_rank() in a subquery."
            )
        count = limit_tree.args.get("count")
        limit = _bound(binder, count, scope, "LIMIT") if count is not None else Literal(1, INT8)
        if options is not None and options.args.get("with_ties"):
            offset = _bound(binder, offset_tree.expression, scope, "OFFSET") if offset_tree is not None else None
            if isinstance(limit, Literal) and limit.value is None:
                message = "row count cannot be null in FETCH FIRST ... WITH TIES clause"
                raise PgError(SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, message)
            return _with_ties(binder, relation, limit, offset)
    elif limit_tree is not None:
        value = limit_tree.expression
        if not (isinstance(value, exp.Var) and value.name.upper() == "ALL"):
            limit = _bound(binder, value, scope, "LIMIT")
    if offset_tree is not None:
        offset = _bound(binder, offset_tree.expression, scope, "OFFSET")
    return relation if limit is None and offset is None else Limit(relation, limit, offset)


def _with_ties(binder: Binder, relation: Relation, limit: Expression, offset: Expression | None) -> Relation:
    """FETCH ... WITH TIES: the first rows in the order, and all rows that tie with the last of them."""
    if isinstance(relation, Project):
        return replace(relation, input=_with_ties(binder, relation.input, limit, offset))
    if not isinstance(relation, Sort):
        message = "WITH TIES cannot be specified without ORDER BY clause"
        raise PgError(SqlState.SYNTAX_ERROR, message)
    calls = []
    for name in ("rank", "row_number"):
        resolved = resolve.resolve_function(name, ())
        assert resolved is not None
        calls.append(WindowCall(Aggregate(resolved.function, (), INT8, False), (), relation.keys, ""))
    columns = [binder.new_column("", call.call) for call in calls]
    window = Window(relation.input, tuple(calls), (*relation.input.columns, *columns))
    rank, number = (ColumnRef(column) for column in columns)
    kept = Filter(window, conjunction(within(number, rank, limit, offset)))
    only = Project(kept, relation.columns, tuple(ColumnRef(c) for c in relation.columns))
    return Sort(only, relation.keys)


def _bound(binder: Binder, tree: exp.Expr, scope: Scope, clause: str) -> Expression:
    bound = binder.expression(tree, in_clause(scope, clause))
    if bound.type != UNKNOWN and not bound.type.is_numeric_family:
        message = f"argument of {clause} must be type bigint, not type {bound.type.base_display}"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(tree))
    if contains(bound, ColumnRef):
        message = f"argument of {clause} must not contain variables"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree))
    if calls := calls_in(bound):
        raise unplaced(calls[0].name, binder.at(tree))
    number = binder.coerce(bound, INT8, ASSIGNMENT, binder.at(tree))
    if isinstance(number, Literal) and number.value is not None:
        check_not_negative(number.value, clause)
    return number
