"""Terms of GROUP BY, ORDER BY and DISTINCT ON: an item's number, an output column's name, or an expression."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.select_list import Item
from server.sql.bind.shapes import is_bare_name, unparenthesised
from server.sql.expressions import Expression
from server.sql.scope import Scope


def output_term(binder: Binder, tree: exp.Expr, items: Sequence[Item], scope: Scope, clause: str) -> Expression:
    """A term of ORDER BY or DISTINCT ON: an output column's name, a number, or any expression.

    An item of type unknown that is a term becomes a text.
    """
    bare = unparenthesised(tree)
    found = positional(binder, bare, items, clause)
    if found is None and is_bare_name(bare):
        found = output_named(binder, bare, items, clause)
    if found is None:
        return binder.default_unknown(binder.expression(bare, scope))
    term = binder.default_unknown(found)
    for item in items:
        if item.expression is found:
            item.expression = term
    return term


def positional(binder: Binder, tree: exp.Expr, items: Sequence[Item], clause: str) -> Expression | None:
    """The item with this number; None if not a constant. 42601 for another constant, 42P10 if out of range."""
    sign = -1 if isinstance(tree, exp.Neg) else 1
    bare = tree.this if isinstance(tree, exp.Neg) else tree
    if isinstance(tree, (exp.Null, exp.Boolean)) or (
        isinstance(bare, exp.Literal) and (bare.is_string or not bare.this.isdigit())
    ):
        message = f"non-integer constant in {clause}"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    if not isinstance(bare, exp.Literal):
        return None
    number = sign * int(bare.this)
    if not 1 <= number <= len(items):
        message = f"{clause} position {number} is not in select list"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=binder.at(tree))
    return items[number - 1].expression


def output_named(binder: Binder, tree: exp.Expr, items: Sequence[Item], clause: str) -> Expression | None:
    """The item with this name; None if there is none. 42702 if it is ambiguous."""
    found: list[Expression] = []
    for item in items:
        if item.name == tree.name and item.expression not in found:
            found.append(item.expression)
    if len(found) > 1:
        message = f'{clause} "{tree.name}" is ambiguous'
        raise PgError(SqlState.AMBIGUOUS_COLUMN, message, position=binder.at(tree))
    return found[0] if found else None
