"""Calls of aggregates with DISTINCT, ORDER BY and FILTER, and GROUPING()."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT4
from server.sql.bind.binder import Binder
from server.sql.bind.calls import call_of, check_available, operator, placed_at, polymorphic
from server.sql.bind.keys import groupable, sort_key
from server.sql.bind.written_calls import WrittenCall
from server.sql.expressions import (
    Aggregate,
    Call,
    ColumnRef,
    Expression,
    SortKey,
    Subquery,
    Volatile,
    contains,
    walk,
)
from server.sql.functions import syntax
from server.sql.functions.aggregates import ORDERED_SETS
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY, FUNCTIONS, Function, Kind
from server.sql.grammar.lexer import words
from server.sql.scope import Scope, in_clause, level_of

ORDER_MATTERS = frozenset(ORDERED_SETS) | words(
    """string_agg array_agg json_agg jsonb_agg json_agg_strict jsonb_agg_strict json_object_agg jsonb_object_agg
    json_object_agg_strict jsonb_object_agg_strict json_object_agg_unique jsonb_object_agg_unique
    json_object_agg_unique_strict jsonb_object_agg_unique_strict"""
)


def aggregate_call(
    binder: Binder,
    resolved: Resolved,
    written: WrittenCall,
    arguments: Sequence[Expression],
    scope: Scope,
    inner: Scope,
    *,
    over: bool,
) -> Expression:
    """An aggregate call with DISTINCT, ORDER BY and FILTER. 42803 if the clause allows no aggregates.

    `arguments`: the bound arguments. `scope` is the scope of the call, `inner` that of its arguments. `over`: OVER
    follows.
    """
    tree = written.tree
    function = resolved.function
    with placed_at(binder, tree):
        check_available(binder, function)
    coerced = tuple(
        binder.default_unknown(a) if t == ANY else binder.coerce(a, t)
        for a, t in zip(arguments, resolved.arguments, strict=True)
    )
    if function.prepare is not None:
        with placed_at(binder, tree):
            coerced = function.prepare(coerced)
    order = _order(binder, function, written, arguments, coerced, inner)
    if written.is_distinct:
        _check_distinct(binder, function, written, coerced, order)
    if function.name not in ORDER_MATTERS:
        order = ()
    condition = None
    if written.condition is not None:
        condition = binder.condition(written.condition, in_clause(inner, "FILTER"), "FILTER")
    level = 0
    if not over:
        parts = (*coerced, *(key.expression for key in order), *(() if condition is None else (condition,)))
        level = _level_of_aggregate(binder, parts, scope, tree)
    coerced, result = polymorphic(binder, resolved, coerced)
    call = call_of(function, coerced, result)
    return Aggregate(
        function,
        coerced,
        call.type,
        call.nullable,
        call.precision,
        distinct=written.is_distinct,
        order=order,
        filter=condition,
        position=binder.at(tree),
        level=level,
    )


def _order(
    binder: Binder,
    function: Function,
    written: WrittenCall,
    arguments: Sequence[Expression],
    coerced: Sequence[Expression],
    scope: Scope,
) -> tuple[SortKey, ...]:
    """The keys of ORDER BY, or of WITHIN GROUP (ORDER BY ...), whose term is the last argument.

    `coerced`: the arguments with their implicit casts. 0A000 for a fraction of an ordered-set aggregate that is not the
    same for all rows.
    """

    def sorted_by(expression: Expression) -> Expression:
        """The argument with its implicit cast, if the expression is an argument."""
        if expression in arguments and function.prepare is None:
            return coerced[arguments.index(expression)]
        return binder.default_unknown(expression)

    if function.name not in ORDERED_SETS:
        return tuple(sort_key(binder, o, sorted_by(binder.expression(o.this, scope))) for o in written.order)
    order = (sort_key(binder, written.order[0], coerced[-1]),)
    if len(coerced) > 1 and any(contains(coerced[0], kind) for kind in (ColumnRef, Subquery, Volatile)):
        raise binder.unsupported(
            f"a fraction of {function.name} that depends on rows",
            written.tree,
            hint="Write the fraction as a literal or a parameter, or call the aggregate once for each fraction.",
        )
    return order


def _check_distinct(
    binder: Binder,
    function: Function,
    written: WrittenCall,
    arguments: Sequence[Expression],
    order: Sequence[SortKey],
) -> None:
    """42P10 if the order is not one of the arguments; 42883 or 0A000 for arguments without equality."""
    if any(key.expression not in arguments for key in order):
        message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(written.tree))
    for argument in arguments:
        operator(binder, "=", [argument, argument], written.tree)
        groupable(binder, argument, written.tree, by_keys=function.name in ("count", "min", "max"))


def _level_of_aggregate(binder: Binder, parts: Sequence[Expression], scope: Scope, tree: exp.Expr) -> int:
    """The innermost query level whose columns the aggregate references; without columns, that of its own query.

    42803 if the aggregate is in a clause of that query that allows no aggregates, or is nested in another aggregate.
    """
    nodes = [node for part in parts for node in walk(part)]
    owner = level_of(scope, {node.column.id for node in nodes if isinstance(node, ColumnRef)})
    nested = owner.level != 0 and any(isinstance(n, Aggregate) and n.level == owner.level for n in nodes)
    if nested or owner.clause == "aggregate function calls":
        message = "aggregate function calls cannot be nested"
        raise PgError(SqlState.GROUPING_ERROR, message, position=binder.at(tree))
    if owner.clause is not None:
        message = f"aggregate functions are not allowed in {owner.clause}"
        raise PgError(SqlState.GROUPING_ERROR, message, position=binder.at(tree))
    return owner.level


def grouping_call(binder: Binder, tree: exp.Anonymous, scope: Scope) -> Expression:
    """GROUPING(key, ...): which of the keys the row's grouping set has not, as bits. 42601, 42803, 54023."""
    if not tree.expressions:
        raise PgError(SqlState.SYNTAX_ERROR, "GROUPING must have an argument", position=binder.at(tree))
    arguments = tuple(binder.default_unknown(binder.expression(a, scope)) for a in tree.expressions)
    owner = level_of(scope, {n.column.id for a in arguments for n in walk(a) if isinstance(n, ColumnRef)})
    if owner.clause is not None:
        message = f"grouping operations are not allowed in {owner.clause}"
        raise PgError(SqlState.GROUPING_ERROR, message, position=binder.at(tree))
    if len(arguments) > 31:
        message = "GROUPING must have fewer than 32 arguments"
        raise PgError(SqlState.TOO_MANY_ARGUMENTS, message, position=binder.at(tree))
    return Call(syntax.GROUPING, arguments, INT4, False)


def is_aggregate(name: str) -> bool:
    """Whether an aggregate of the function table has the name."""
    rows = FUNCTIONS.get(name)
    return rows is not None and rows[0].kind is Kind.AGGREGATE
