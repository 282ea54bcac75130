"""CREATE HOLD, and ALTER HOLD ... ADVANCE and SET."""

from __future__ import annotations

from server.sql.grammar.statements.holds import AdvanceHold, AlterHold, CreateHold
from server.sql.grammar.statements.parts import Expr, Name
from server.sql.grammar.token_reader import TokenReader


def parse_create_hold(tokens: TokenReader, start: int) -> CreateHold:
    exists = tokens.if_not_exists()
    name = tokens.name()
    tokens.expect("on")
    on = tokens.comma_list(tokens.name)
    at = tokens.expression("with") if tokens.take("at") else None
    max_lag = _parse_max_lag(tokens) if tokens.take("with") else None
    return CreateHold(*tokens.text_from(start), name, on, at, max_lag, exists)


def parse_advance_hold(tokens: TokenReader, start: int, name: Name, if_exists: bool) -> AdvanceHold:
    """The part of ALTER HOLD name ADVANCE [TO time] after ADVANCE."""
    to = tokens.expression() if tokens.take("to") else None
    return AdvanceHold(*tokens.text_from(start), name, to, if_exists)


def parse_alter_hold(tokens: TokenReader, start: int, name: Name, if_exists: bool) -> AlterHold:
    """The part of ALTER HOLD name SET (MAX LAG [=] interval) after SET."""
    max_lag = _parse_max_lag(tokens)
    return AlterHold(*tokens.text_from(start), name, max_lag, if_exists)


def _parse_max_lag(tokens: TokenReader) -> Expr:
    """(MAX LAG [=] interval)"""
    for word in ("(", "max", "lag"):
        tokens.expect_one_of(word)
    tokens.take("=")
    if tokens.at_statement_end or tokens.at(",", ")"):
        raise tokens.expected("option value")
    lag = tokens.expression(",")
    tokens.take(",")
    tokens.expect_one_of(")")
    return lag
