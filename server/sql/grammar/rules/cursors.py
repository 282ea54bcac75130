"""DECLARE, FETCH and CLOSE."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.queries import parse_select, refuse_into
from server.sql.grammar.statements.cursors import CloseCursor, Declare, Fetch
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.show import ShowStatement
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader


def parse_declare(tokens: TokenReader, parse_statement: Rule) -> Declare:
    start = tokens.index
    tokens.expect("declare")
    name = tokens.ident()
    while not tokens.at("cursor"):
        tokens.reject("a BINARY cursor", "binary", hint="Request the binary format when FETCH is bound.")
        tokens.reject("a SCROLL cursor", "scroll")
        if not (tokens.take("no", "scroll") or tokens.take("insensitive") or tokens.take("asensitive")):
            raise tokens.syntax_error()
    tokens.expect("cursor")
    if tokens.at_all("with", "hold"):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "WITH HOLD is unsupported for cursors",
            position=tokens.token.start + 1,
        )
    tokens.take("without", "hold")
    tokens.expect("for")
    if not tokens.at(*QUERY_HEADS, "subscribe", "show"):
        raise tokens.syntax_error()
    statement = parse_select(tokens) if tokens.at("with") else parse_statement(tokens)
    refuse_into(statement)
    assert isinstance(statement, Select | Subscribe | ShowStatement)
    return Declare(*tokens.text_from(start), name, statement)


def parse_fetch(tokens: TokenReader) -> Fetch:
    start = tokens.index
    tokens.expect("fetch")
    count = _parse_count(tokens)
    _ = tokens.take("from") or tokens.take("in")
    cursor = tokens.ident()
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
    return Fetch(*tokens.text_from(start), cursor, count, timeout)


def _parse_count(tokens: TokenReader) -> int | None:
    """The number of rows; None for ALL. A direction keyword at the end of the statement is the cursor's name."""
    after = tokens.ahead()
    if not tokens.at("all") and (after.kind is Kind.END or after.value == ";"):
        return 1
    tokens.reject("FETCH in that direction", "prior", "first", "last", "absolute", "relative", "backward", "-")
    if tokens.take("next"):
        return 1
    tokens.take("forward")
    tokens.reject("FETCH in that direction", "-")
    if tokens.take("all"):
        return None
    return int(tokens.integer()) if tokens.token.kind is Kind.NUMBER else 1


def parse_close(tokens: TokenReader) -> CloseCursor:
    start = tokens.index
    tokens.expect("close")
    name = None if tokens.take("all") else tokens.ident()
    return CloseCursor(*tokens.text_from(start), name)
