"""VACUUM, ANALYZE, REINDEX and REFRESH, which tools send although there is nothing to do."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.objects import TABLESPACE_HINT, parse_names, parse_with_data
from server.sql.grammar.rules.settings import parse_setting_value
from server.sql.grammar.statements.maintenance import Maintain, Refresh, Reindex
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.token_reader import TokenReader


def parse_maintain(tokens: TokenReader) -> Maintain:
    start = tokens.index
    tag = tokens.choose("vacuum", "analyze").upper()
    if tokens.at("("):
        tokens.in_parentheses(lambda: tokens.span(",", ")"))
    else:
        for option in ("full", "freeze", "verbose", "analyze") if tag == "VACUUM" else ("verbose",):
            tokens.take(option)
    tables = () if tokens.at_statement_end else parse_names(tokens, lambda: _parse_table(tokens))
    return Maintain(*tokens.text_from(start), tag, tables)


def _parse_table(tokens: TokenReader) -> Name:
    table = tokens.name()
    if tokens.at("("):
        tokens.in_parentheses(tokens.ident)
    return table


def parse_checkpoint(tokens: TokenReader) -> Maintain:
    start = tokens.index
    tokens.expect("checkpoint")
    return Maintain(*tokens.text_from(start), "CHECKPOINT", ())


def parse_reindex(tokens: TokenReader) -> Reindex:
    """REINDEX [(options)] {INDEX | TABLE | SCHEMA | DATABASE | SYSTEM} [CONCURRENTLY] [name]"""
    start = tokens.index
    tokens.expect("reindex")
    options = tokens.in_parentheses(lambda: _parse_option(tokens)) if tokens.at("(") else ()
    kind = tokens.choose("index", "table", "schema", "database", "system")
    concurrently = tokens.take("concurrently") or ("concurrently", True) in options
    name: Name | None = None
    if kind in ("index", "table") or not tokens.at_statement_end:
        name = tokens.name(3 if kind in ("index", "table") else 1)
    elif kind == "schema":
        raise tokens.syntax_error()
    return Reindex(*tokens.text_from(start), kind, name, concurrently)


def _parse_option(tokens: TokenReader) -> tuple[str, bool]:
    """An option of REINDEX and whether it is on. TABLESPACE is refused (0A000)."""
    tokens.reject("REINDEX with TABLESPACE", "tablespace", hint=TABLESPACE_HINT)
    option = tokens.ident(not_names=frozenset())
    if option.name not in ("verbose", "concurrently"):
        message = f'unrecognized REINDEX option "{option.name}"'
        raise PgError(SqlState.SYNTAX_ERROR, message, position=option.position)
    value = "true" if tokens.at(",", ")") else parse_setting_value(tokens).lower()
    if value not in ("true", "on", "1", "false", "off", "0"):
        raise PgError(SqlState.SYNTAX_ERROR, f"{option.name} requires a Boolean value")
    return option.name, value in ("true", "on", "1")


def parse_refresh(tokens: TokenReader) -> Refresh:
    """REFRESH MATERIALIZED VIEW [CONCURRENTLY] name [WITH [NO] DATA]"""
    start = tokens.index
    tokens.expect("refresh")
    tokens.expect("materialized")
    tokens.expect("view")
    concurrently = tokens.take("concurrently")
    name = tokens.name()
    if not parse_with_data(tokens):
        if concurrently:
            message = "CONCURRENTLY and WITH NO DATA options cannot be used together"
            raise PgError(SqlState.SYNTAX_ERROR, message)
        raise tokens.not_supported("REFRESH ... WITH NO DATA", "Drop the view to save its memory and its computation.")
    return Refresh(*tokens.text_from(start), name)
