"""SELECT, VALUES, TABLE and WITH, and AS OF."""

from __future__ import annotations

from server.sql.grammar.statements.queries import AsOf, Select
from server.sql.grammar.token_reader import TokenReader


def parse_select(tokens: TokenReader) -> Select:
    start = tokens.index
    if tokens.at("with"):
        _reject_with_before_write(tokens)
    query = tokens.query()
    as_of = parse_as_of(tokens) if tokens.at("as") else None
    return Select(*tokens.text_from(start), query, as_of)


def _reject_with_before_write(tokens: TokenReader) -> None:
    """0A000 for WITH ... INSERT, UPDATE, DELETE or MERGE. Leaves the reading position unchanged otherwise.

    The statement after WITH starts with the first keyword of a query or write outside parentheses.
    """
    mark = tokens.index
    tokens.advance()
    span = tokens.span("select", "values", "table", "insert", "update", "delete", "merge")
    if tokens.at("insert", "update", "delete", "merge") and span[-2].value == ")":
        hint = "Write WITH in front of the SELECT." if tokens.at("insert") else None
        raise tokens.not_supported(f"WITH in front of {tokens.token.value.upper()}", hint)
    tokens.move_to(mark)


def parse_as_of(tokens: TokenReader) -> AsOf:
    tokens.expect("as")
    if not tokens.take("of"):
        raise tokens.expected("OF")
    at_least = tokens.take("at", "least")
    if tokens.at_statement_end or tokens.at(")"):
        if tokens.at(";"):
            tokens.advance()  # the message names the token after the semicolon
        raise tokens.expected(f"a timestamp value after 'AS OF{' AT LEAST' if at_least else ''}'")
    return AsOf(tokens.expression("up", "envelope", "within", "as"), at_least)
