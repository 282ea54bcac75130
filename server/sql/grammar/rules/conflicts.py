"""The ON CONFLICT clause of INSERT."""

from __future__ import annotations

from collections.abc import Callable

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.views import parse_index_key
from server.sql.grammar.statements.parts import Expr, Ident
from server.sql.grammar.statements.writes import Assignment, OnConflict, RowAssignment
from server.sql.grammar.token_reader import TokenReader

Assignments = tuple[Assignment | RowAssignment, ...]


def parse_on_conflict(
    tokens: TokenReader,
    assignment: Callable[[TokenReader], Assignments],
    where: Callable[[TokenReader], Expr | None],
) -> OnConflict | None:
    """ON CONFLICT, if it is next. `assignment`, `where`: the rules for these parts of UPDATE."""
    position = tokens.token.start + 1
    if not tokens.take("on", "conflict"):
        return None
    keys: tuple[Expr, ...] = ()
    condition: Expr | None = None
    constraint: Ident | None = None
    if tokens.take("on", "constraint"):
        constraint = tokens.ident()
    elif tokens.at("("):
        keys = tokens.in_parentheses(lambda: _parse_key(tokens))
        condition = tokens.expression("do") if tokens.take("where") else None
    tokens.expect("do")
    if tokens.take("nothing"):
        return OnConflict(position, keys, condition, constraint, None, None)
    tokens.expect("update", "set")
    assignments = tuple(part for parts in tokens.comma_list(lambda: assignment(tokens)) for part in parts)
    return OnConflict(position, keys, condition, constraint, assignments, where(tokens))


def _parse_key(tokens: TokenReader) -> Expr:
    """A column or an expression, as in CREATE INDEX. PgError 42P10 for an order."""
    key = parse_index_key(tokens)
    for given, what in ((key.order, "ASC/DESC"), (key.nulls, "NULLS FIRST/LAST")):
        if given:
            message = f"{what} is not allowed in ON CONFLICT clause"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=key.expression.position)
    return key.expression
