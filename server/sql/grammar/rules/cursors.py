"""DECLARE, FETCH, MOVE and CLOSE."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.queries import parse_select, refuse_into
from server.sql.grammar.statements.cursors import CloseCursor, Declare, Direction, Fetch, Move
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.show import ShowStatement
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader


def parse_declare(tokens: TokenReader, parse_statement: Rule) -> Declare:
    start = tokens.index
    tokens.expect("declare")
    name = tokens.ident()
    scroll: bool | None = None
    binary = False
    while not tokens.at("cursor"):
        if tokens.take("binary"):
            binary = True
        elif tokens.take("no", "scroll"):
            scroll = False
        elif tokens.take("scroll"):
            scroll = True
        elif tokens.at_all("subscription", "cursor"):
            hint = "In a transaction block, DECLARE name CURSOR FOR SUBSCRIBE relation."
            raise tokens.not_supported("a SUBSCRIPTION CURSOR", hint)
        elif not (tokens.take("insensitive") or tokens.take("asensitive")):
            raise tokens.syntax_error()
    tokens.expect("cursor")
    hold = tokens.take("with", "hold")
    if not hold:
        tokens.take("without", "hold")
    tokens.expect("for")
    if not tokens.at(*QUERY_HEADS, "subscribe", "show"):
        raise tokens.syntax_error()
    statement = parse_select(tokens) if tokens.at("with") else parse_statement(tokens)
    refuse_into(statement)
    assert isinstance(statement, Select | Subscribe | ShowStatement)
    if isinstance(statement, Subscribe) and (hold or scroll):
        what = "WITH HOLD" if hold else "SCROLL"
        hint = f"Omit {what}: a cursor of SUBSCRIBE reads changes forward, in its transaction."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is unsupported for cursors", hint=hint)
    return Declare(*tokens.text_from(start), name, statement, scroll, hold, binary)


def parse_fetch(tokens: TokenReader) -> Fetch:
    start = tokens.index
    tokens.expect("fetch")
    direction, count, cursor = _parse_arguments(tokens)
    timeout: str | None = None
    if tokens.take("with"):
        tokens.expect_one_of("(")
        tokens.expect_one_of("timeout")
        tokens.take("=")
        tokens.take("interval")
        if tokens.token.kind is not Kind.STRING:
            raise tokens.expected("option value")
        timeout = tokens.string()
        tokens.expect_one_of(")")
    return Fetch(*tokens.text_from(start), cursor, direction, count, timeout)


def parse_move(tokens: TokenReader) -> Move:
    start = tokens.index
    tokens.expect("move")
    direction, count, cursor = _parse_arguments(tokens)
    return Move(*tokens.text_from(start), cursor, direction, count)


def _parse_arguments(tokens: TokenReader) -> tuple[Direction, int | None, Ident]:
    direction, count = _parse_direction(tokens)
    _ = tokens.take("from") or tokens.take("in")
    return direction, count, tokens.ident()


def _parse_direction(tokens: TokenReader) -> tuple[Direction, int | None]:
    """The direction, and the number of rows; None for ALL. A keyword that ends the statement is the cursor's name."""
    after = tokens.ahead()
    if not tokens.at("all") and (after.kind is Kind.END or after.value == ";"):
        return Direction.FORWARD, 1
    if tokens.take("next"):
        return Direction.FORWARD, 1
    if tokens.take("prior"):
        return Direction.BACKWARD, 1
    if tokens.take("first"):
        return Direction.ABSOLUTE, 1
    if tokens.take("last"):
        return Direction.ABSOLUTE, -1
    if tokens.take("absolute"):
        return Direction.ABSOLUTE, _parse_signed(tokens)
    if tokens.take("relative"):
        return Direction.RELATIVE, _parse_signed(tokens)
    backward = tokens.take("backward")
    if not backward:
        tokens.take("forward")
    direction, opposite = Direction.FORWARD, Direction.BACKWARD
    if backward:
        direction, opposite = opposite, direction
    if tokens.take("all"):
        return direction, None
    count = _parse_signed(tokens) if tokens.token.kind is Kind.NUMBER or tokens.at("-", "+") else 1
    return (direction, count) if count >= 0 else (opposite, -count)


def _parse_signed(tokens: TokenReader) -> int:
    is_negative = tokens.take("-")
    if not is_negative:
        tokens.take("+")
    count = tokens.small_integer()
    return -count if is_negative else count


def parse_close(tokens: TokenReader) -> CloseCursor:
    start = tokens.index
    tokens.expect("close")
    name = None if tokens.take("all") else tokens.ident()
    return CloseCursor(*tokens.text_from(start), name)
