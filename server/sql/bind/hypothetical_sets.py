"""Hypothetical-set aggregates: rank(...), dense_rank(...), percent_rank(...) and cume_dist(...) WITHIN GROUP.

They are what the window functions would return for one more row with these arguments, which is a count of rows:

    rank(a) WITHIN GROUP (ORDER BY k)    count(*) FILTER (WHERE k < a) + 1

The counts are bound in place of the call, so that they are computed and maintained like any others.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.written_calls import WrittenCall
from server.sql.expressions import Expression
from server.sql.functions import resolve
from server.sql.scope import Scope

HYPOTHETICAL_SETS = ("rank", "dense_rank", "percent_rank", "cume_dist")


def hypothetical_set(binder: Binder, call: WrittenCall, within: Sequence[exp.Ordered], scope: Scope) -> Expression:
    """The call's value. `within`: the terms of WITHIN GROUP. 42883 if their number is not that of the arguments."""
    name, arguments, where, tree = call.name, call.arguments, call.condition, call.tree
    if len(arguments) != len(within):
        error = resolve.no_such("function", f"{name}(...)", len(arguments), binder.at(tree))
        error.hint = (
            f"To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here "
            f"{len(arguments)}) must match the number of ordering columns (here {len(within)})."
        )
        raise error
    for argument in arguments:
        if any(isinstance(node, exp.Column) for node in argument.find_all(exp.Column)):
            message = f"an argument of {name} that names columns is not supported"
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                message,
                position=binder.at(tree),
                hint="Pass a constant or a parameter.",
            )
    before = _before(arguments, within)
    every, smaller = _count(where), _count(where, before)
    match name:
        case "rank":
            made: exp.Expr = exp.Add(this=smaller, expression=exp.Literal.number(1))
        case "dense_rank":
            made = exp.Add(this=_distinct(within, where, before), expression=exp.Literal.number(1))
        case "percent_rank":
            made = _quotient(smaller, exp.Anonymous(this="greatest", expressions=[every, exp.Literal.number(1)]))
        case _:
            peers = exp.Or(this=exp.Paren(this=before), expression=exp.Paren(this=_equal(arguments, within)))
            counts = (_count(where, peers), every)
            made = _quotient(*(exp.Paren(this=exp.Add(this=c, expression=exp.Literal.number(1))) for c in counts))
    return binder.expression(made, scope)


def _count(where: exp.Expr | None, condition: exp.Expr | None = None, *keys: exp.Expr) -> exp.Expr:
    """count(*), or count(DISTINCT key), of the rows that meet both conditions."""
    counted = exp.Distinct(expressions=[k.copy() for k in keys]) if keys else exp.Star()
    call = exp.Anonymous(this="count", expressions=[counted])
    parts = [exp.Paren(this=part.copy()) for part in (where, condition) if part is not None]
    if not parts:
        return call
    whole = parts[0] if len(parts) == 1 else exp.And(this=parts[0], expression=parts[1])
    return exp.Filter(this=call, expression=exp.Where(this=whole))


def _distinct(within: Sequence[exp.Ordered], where: exp.Expr | None, before: exp.Expr) -> exp.Expr:
    """The number of distinct keys before the arguments. count(DISTINCT) ignores NULL, which is a key here."""
    if len(within) > 1:
        return _count(where, before, exp.Anonymous(this="row", expressions=[t.this.copy() for t in within]))
    key = within[0].this
    nulls = exp.And(this=exp.Paren(this=before.copy()), expression=_is_null(key))
    one = exp.Literal.number(1)
    null = exp.Anonymous(this="least", expressions=[_count(where, nulls), one])
    return exp.Paren(this=exp.Add(this=_count(where, before, key), expression=null))


def _quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Div(this=exp.Cast(this=left, to=exp.DataType(this=exp.DType.DOUBLE)), expression=right)


def _before(arguments: Sequence[exp.Expr], within: Sequence[exp.Ordered]) -> exp.Expr:
    """Whether a row precedes the arguments in the order."""
    first = _precedes(within[0], arguments[0])
    if len(within) == 1:
        return first
    rest = exp.And(
        this=_equal(arguments[:1], within[:1]), expression=exp.Paren(this=_before(arguments[1:], within[1:]))
    )
    return exp.Or(this=first, expression=exp.Paren(this=rest))


def _precedes(term: exp.Ordered, argument: exp.Expr) -> exp.Expr:
    comparison = exp.GT if term.args.get("desc") else exp.LT
    smaller = comparison(this=term.this.copy(), expression=argument.copy())
    null, other = (term.this, argument) if term.args.get("nulls_first") else (argument, term.this)
    by_null = exp.And(this=_is_null(null), expression=exp.Not(this=_is_null(other)))
    return exp.Paren(this=exp.Or(this=smaller, expression=exp.Paren(this=by_null)))


def _equal(arguments: Sequence[exp.Expr], within: Sequence[exp.Ordered]) -> exp.Expr:
    tests = [
        exp.Paren(this=exp.NullSafeEQ(this=term.this.copy(), expression=argument.copy()))
        for term, argument in zip(within, arguments, strict=True)
    ]
    whole: exp.Expr = tests[0]
    for test in tests[1:]:
        whole = exp.And(this=whole, expression=test)
    return whole


def _is_null(tree: exp.Expr) -> exp.Expr:
    return exp.Is(this=exp.Paren(this=tree.copy()), expression=exp.Null())
