"""Functions with special syntax: EXTRACT(field FROM x), SUBSTRING(x FROM 2 FOR 3), ..."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT4, TEXT
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import apply, call, operator
from server.sql.expressions import Expression, Literal
from server.sql.scope import Scope


@form(exp.Extract)
def extract(binder: Binder, tree: exp.Extract, scope: Scope) -> Expression:
    """EXTRACT(field FROM x)"""
    field = Literal(tree.this.name.lower(), TEXT, binder.at(tree.this))
    return apply(binder, "extract", [field, binder.expression(tree.expression, scope)], tree)


@form(exp.Substring)
def substring(binder: Binder, tree: exp.Substring, scope: Scope) -> Expression:
    """SUBSTRING(text FROM start FOR length)"""
    start, length = tree.args.get("start"), tree.args.get("length")
    arguments = [binder.expression(tree.this, scope)]
    if start is None and length is not None:
        arguments.append(Literal(1, INT4))
    arguments += [binder.expression(a, scope) for a in (start, length) if a is not None]
    return apply(binder, "substring", arguments, tree)


@form(exp.Overlay)
def overlay(binder: Binder, tree: exp.Overlay, scope: Scope) -> Expression:
    """OVERLAY(text PLACING other FROM start FOR length)"""
    bounds = [tree.args[k] for k in ("from_", "for_") if tree.args.get(k) is not None]
    return call(binder, "overlay", [tree.this, tree.expression, *bounds], scope, tree)


def normal_form(binder: Binder, tree: exp.Column) -> exp.Expr:
    """NFC, NFD, NFKC and NFKD are keywords in normalize()."""
    if tree.name not in ("nfc", "nfd", "nfkc", "nfkd"):
        raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{tree.name}"', position=binder.at(tree))
    return exp.Literal.string(tree.name)


def similar(binder: Binder, sides: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
    """text SIMILAR TO pattern [ESCAPE character]"""
    return operator(binder, "SIMILAR TO", [binder.expression(side, scope) for side in sides], tree)


@form(exp.Trim)
def trim(binder: Binder, tree: exp.Trim, scope: Scope) -> Expression:
    """TRIM(LEADING characters FROM text)"""
    name = trim_name(tree)
    characters = tree.expression
    return call(binder, name, [tree.this] if characters is None else [tree.this, characters], scope, tree)


@form(exp.Overlaps)
def overlaps(binder: Binder, tree: exp.Overlaps, scope: Scope) -> Expression:
    """(start, end) OVERLAPS (start, end)"""
    sides = [side.expressions if isinstance(side, exp.Tuple) else [side] for side in (tree.this, tree.expression)]
    for side, word in zip(sides, ("left", "right"), strict=True):
        if len(side) != 2:
            message = f"wrong number of parameters on {word} side of OVERLAPS expression"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    return call(binder, "overlaps", [*sides[0], *sides[1]], scope, tree)


def trim_name(tree: exp.Trim) -> str:
    """The function that TRIM calls."""
    return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(tree.args.get("position") or "", "btrim")


@form(exp.SimilarTo)
def similar_to(binder: Binder, tree: exp.SimilarTo, scope: Scope) -> Expression:
    """text SIMILAR TO pattern, without ESCAPE."""
    return similar(binder, [tree.this, tree.expression], scope, tree)


@form(exp.StrPosition)
def position(binder: Binder, tree: exp.StrPosition, scope: Scope) -> Expression:
    """POSITION(substring IN text)"""
    return call(binder, "position", [tree.this, tree.args["substr"]], scope, tree)


@form(exp.AtTimeZone)
def at_time_zone(binder: Binder, tree: exp.AtTimeZone, scope: Scope) -> Expression:
    """x AT TIME ZONE zone"""
    return call(binder, "timezone", [tree.args["zone"], tree.this], scope, tree)
