"""Calls by name as they are written, before their names are resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.shapes import function_name
from server.sql.functions import resolve
from server.sql.functions.aggregates import ORDERED_SETS


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """`name([DISTINCT] arguments [ORDER BY order]) [WITHIN GROUP (ORDER BY within)] [FILTER (WHERE condition)]`.

    `has_star`: the argument list is `*`, and `arguments` is empty. `within` is None without WITHIN GROUP.
    """

    tree: exp.Anonymous
    name: str
    arguments: Sequence[exp.Expr]
    is_distinct: bool
    order: Sequence[exp.Ordered]
    has_star: bool
    within: Sequence[exp.Ordered] | None
    condition: exp.Expr | None


def written_call(binder: Binder, tree: exp.Expr) -> WrittenCall:
    """The call with its clauses. 0A000 if FILTER does not follow a call."""
    call = tree
    condition = within = None
    if isinstance(call, exp.Filter):
        condition, call = call.expression.this, call.this
    if isinstance(call, exp.WithinGroup):
        within, call = call.expression.expressions, call.this
    if isinstance(call, exp.Dot) and call.this.name == "pg_catalog":
        call = call.expression
    if not isinstance(call, exp.Anonymous):
        raise binder.unsupported("FILTER here", tree, hint="Write FILTER directly after the call of an aggregate.")
    arguments = list(call.expressions)
    is_distinct, order, has_star = False, [], False
    if arguments and isinstance(arguments[-1], exp.Order):
        last = arguments.pop()
        order = list(last.expressions)
        arguments.append(last.this)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments, is_distinct = list(arguments[0].expressions), True
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments, has_star = [], True
    return WrittenCall(call, function_name(call), arguments, is_distinct, order, has_star, within, condition)


def ordered_set_call(binder: Binder, call: WrittenCall) -> WrittenCall:
    """A call with WITHIN GROUP, whose terms become the last arguments and the order.

    42809 if the function needs WITHIN GROUP and has none; 42883 if it is no ordered-set aggregate; 42601 for DISTINCT
    or ORDER BY.
    """
    position = binder.at(call.tree)
    if call.within is None:
        message = f"WITHIN GROUP is required for ordered-set aggregate {call.name}"
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=position)
    if call.name not in ORDERED_SETS:
        raise resolve.no_such("function", f"{call.name}(...)", 2, position)
    if call.is_distinct or call.order:
        message = "cannot use DISTINCT or ORDER BY with WITHIN GROUP"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=position)
    return replace(call, arguments=[*call.arguments, *(term.this for term in call.within)], order=call.within)
