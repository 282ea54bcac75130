"""Constants and parameters: `1.5`, `'text'`, `INTERVAL '1' DAY`, `$1`.

A string literal has type unknown. The context determines its type (`coerce`).
"""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import exact_numeric
from protocol.pgwire.types import BOOL, INTERVAL, JSON, UNKNOWN, bare_numeric
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import placed_at
from server.sql.bind.casts import precision_of, rounded
from server.sql.coerce import EXPLICIT, integer_literal
from server.sql.expressions import Expression, Literal
from server.sql.functions import intervals
from server.sql.scope import Scope


@form(exp.Literal)
def literal(binder: Binder, tree: exp.Literal, scope: Scope) -> Expression:
    """A number, or a string of type unknown."""
    if tree.is_string:
        return Literal(tree.this, UNKNOWN, binder.at(tree))
    return number_literal(tree.this, binder.at(tree))


def number_literal(text: str, position: int | None) -> Literal:
    """integer, bigint or numeric, by value. A numeric may have more digits than a column: see `check_digits`."""
    text = text.replace("_", "")
    if text.lstrip("-").isdigit():
        return integer_literal(text, position)
    value = exact_numeric(text)
    exponent = int(value.as_tuple().exponent)
    if exponent > 0:
        value = Decimal(f"{value:f}")
    return Literal(value, bare_numeric(max(-exponent, 0)), position)


@form(exp.Parameter)
def parameter(binder: Binder, tree: exp.Parameter, scope: Scope) -> Expression:
    """$n. 42P02."""
    number = int(tree.name) if tree.name.isdigit() else 0
    if not binder.takes_parameters or number < 1 or number > 65535:
        message = f"there is no parameter ${tree.name}"
        raise PgError(SqlState.UNDEFINED_PARAMETER, message, position=binder.at(tree))
    return binder.parameter(number - 1, binder.at(tree))


@form(exp.Interval)
def interval(binder: Binder, tree: exp.Interval, scope: Scope) -> Expression:
    """INTERVAL '1' DAY, INTERVAL '1 day', INTERVAL '1.5' SECOND(0)"""
    text, unit = tree.this.name, tree.args.get("unit")
    if unit is not None:
        with placed_at(binder, tree.this):
            value = Literal(intervals.with_fields(text, unit.name), INTERVAL, binder.at(tree))
        digits = tree.args.get("digits")
        return value if digits is None else rounded(binder, value, precision_of(binder, [digits], tree), tree)
    return binder.coerce(Literal(text, UNKNOWN, binder.at(tree)), INTERVAL, EXPLICIT)


@form(exp.Concat)
def adjacent_strings(binder: Binder, tree: exp.Concat, scope: Scope) -> Expression:
    """'a' 'b': adjacent string literals are concatenated."""
    return Literal("".join(part.name for part in tree.expressions), UNKNOWN, binder.at(tree))


@form(exp.Boolean)
def truth(binder: Binder, tree: exp.Boolean, scope: Scope) -> Expression:
    """TRUE, FALSE"""
    return Literal(bool(tree.this), BOOL)


@form(exp.Null)
def null(binder: Binder, tree: exp.Null, scope: Scope) -> Expression:
    """NULL, of type unknown."""
    return Literal(None, UNKNOWN)


@form(exp.RawString, exp.ByteString, exp.National)
def marked_string(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """$$text$$, E'text' etc., already decoded."""
    return Literal(tree.this, UNKNOWN, binder.at(tree))


@form(exp.ParseJSON)
def json(binder: Binder, tree: exp.ParseJSON, scope: Scope) -> Expression:
    """JSON 'text'"""
    return binder.coerce(binder.expression(tree.this, scope), JSON, EXPLICIT)
