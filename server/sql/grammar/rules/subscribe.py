"""SUBSCRIBE."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar import trees
from server.sql.grammar.rules.queries import parse_as_of
from server.sql.grammar.rules.settings import parse_setting_value
from server.sql.grammar.rules.show import parse_show
from server.sql.grammar.statements.parts import Expr, Name, Query
from server.sql.grammar.statements.show import ShowStatement
from server.sql.grammar.statements.subscribe import (
    EnvelopeDebezium,
    EnvelopeUpsert,
    Output,
    Subscribe,
    WithinTimestampOrderBy,
)
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader

_TRUE, _FALSE = ("true", "on", "1", "t", "yes"), ("false", "off", "0", "f", "no")


def parse_subscribe(tokens: TokenReader) -> Subscribe:
    """SUBSCRIBE [TO] source [output] [WITH (...)] [AS OF ...] [UP TO ...] [output]; at most one output."""
    start = tokens.index
    tokens.expect("subscribe")
    tokens.take("to")
    source: Name | Query | ShowStatement
    if tokens.take("("):
        source = parse_show(tokens) if tokens.at("show") else tokens.query()
        if not tokens.take(")"):
            raise tokens.expected("right parenthesis")
    elif tokens.at(*QUERY_HEADS, "show"):
        error = tokens.syntax_error()
        error.hint = "Write the query in parentheses: SUBSCRIBE (SELECT ...)."
        raise error
    else:
        source = tokens.name()
    output = _parse_output(tokens)
    options = _parse_options(tokens) if tokens.take("with") else {}
    as_of = parse_as_of(tokens) if tokens.at("as") else None
    up_to: Expr | None = None
    if tokens.take("up"):
        if not tokens.take("to"):
            raise tokens.expected("TO")
        if tokens.at_statement_end or tokens.at(")"):
            raise tokens.expected("an expression")
        up_to = tokens.expression("as", "up", "envelope", "within")
    if output is None:
        output = _parse_output(tokens)
    if not (tokens.at_statement_end or tokens.at(")")):
        raise tokens.expected("end of statement")
    progress, snapshot = options.get("progress", False), options.get("snapshot", True)
    return Subscribe(*tokens.text_from(start), source, output, progress, snapshot, as_of, up_to)


def _parse_output(tokens: TokenReader) -> Output | None:
    if tokens.take("envelope"):
        envelope = tokens.expect_one_of("upsert", "debezium")
        tokens.expect_one_of("(")
        tokens.expect_one_of("key")
        tokens.expect_one_of("(")
        keys = tokens.comma_list(tokens.ident)
        tokens.expect_one_of(")")
        tokens.expect_one_of(")")
        return EnvelopeUpsert(keys) if envelope == "upsert" else EnvelopeDebezium(keys)
    if tokens.take("within"):
        for word in ("timestamp", "order", "by"):
            tokens.expect_one_of(word)
        return WithinTimestampOrderBy(tokens.comma_list(lambda: _parse_order_term(tokens)))
    return None


def _parse_order_term(tokens: TokenReader) -> Expr:
    span = tokens.span(",", "with", "as", "up", "envelope", "within")
    text, offset = tokens.sliced(span)
    return Expr(trees.parse_order_term(tokens.source, span), text, offset)


def _parse_options(tokens: TokenReader) -> dict[str, bool]:
    tokens.expect_one_of("(")
    options: dict[str, bool] = {}
    while True:
        token = tokens.token
        option = tokens.expect_one_of("progress", "snapshot")
        if option in options:
            raise PgError(SqlState.SYNTAX_ERROR, f"{option.upper()} specified more than once", position=token.start + 1)
        has_value = tokens.take("=") or not (tokens.at_statement_end or tokens.at(",", ")"))
        options[option] = _parse_boolean(tokens, option.upper()) if has_value else True
        if not tokens.take(","):
            break
    tokens.expect_one_of(")")
    return options


def _parse_boolean(tokens: TokenReader, option: str) -> bool:
    token = tokens.token
    if tokens.at_statement_end or tokens.at(",", ")"):
        raise tokens.expected("option value")
    value = parse_setting_value(tokens).lower()
    if value not in _TRUE and value not in _FALSE:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"invalid {option}: cannot use value as boolean",
            position=token.start + 1,
        )
    return value in _TRUE
