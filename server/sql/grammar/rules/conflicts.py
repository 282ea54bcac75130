"""The ON CONFLICT clause of INSERT."""

from __future__ import annotations

from collections.abc import Callable

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
    columns: tuple[Ident, ...] = ()
    constraint: Ident | None = None
    if tokens.take("on", "constraint"):
        constraint = tokens.ident()
    elif tokens.at("("):
        columns = tokens.in_parentheses(lambda: _parse_column(tokens))
        if tokens.take("where"):  # selects partial indexes, which do not exist; others match as well
            tokens.expression("do")
    tokens.expect("do")
    if tokens.take("nothing"):
        return OnConflict(position, columns, constraint, None, None)
    tokens.expect("update", "set")
    assignments = tuple(part for parts in tokens.comma_list(lambda: assignment(tokens)) for part in parts)
    return OnConflict(position, columns, constraint, assignments, where(tokens))


_COLUMNS_ONLY = "Name the columns of a key, or the constraint with ON CONFLICT ON CONSTRAINT."


def _parse_column(tokens: TokenReader) -> Ident:
    tokens.reject("an expression in ON CONFLICT", "(", hint=_COLUMNS_ONLY)
    column = tokens.ident()
    tokens.reject("an expression in ON CONFLICT", "(", hint=_COLUMNS_ONLY)
    tokens.reject("COLLATE in ON CONFLICT", "collate", hint=_COLUMNS_ONLY)
    return column
