"""COPY."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import RESERVED_WORDS, Kind
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.queries import refuse_into
from server.sql.grammar.rules.settings import parse_setting_value
from server.sql.grammar.statements.copy import CopyFrom, CopyRelation, CopyTo
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Options
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader


def parse_copy(tokens: TokenReader, parse_statement: Rule) -> CopyFrom | CopyTo:
    start = tokens.index
    tokens.expect("copy")
    if tokens.take("("):
        if not tokens.at(*QUERY_HEADS, "insert", "update", "delete", "merge", "subscribe"):
            raise tokens.syntax_error()
        source = parse_statement(tokens)
        refuse_into(source)
        assert isinstance(source, Select | Insert | Update | Delete | Merge | WithWrites | Subscribe)
        tokens.expect(")", "to")
        options = _parse_options(tokens, "to")
        return CopyTo(*tokens.text_from(start), source, options)
    binary: Options = (("format", "binary"),) if tokens.take("binary") else ()
    relation = tokens.name()
    columns = tokens.column_list()
    direction = tokens.choose("from", "to")
    options = binary + _parse_options(tokens, direction)
    if direction == "to":
        if tokens.at("where"):
            position = tokens.token.start + 1
            raise PgError(SqlState.SYNTAX_ERROR, "WHERE clause not allowed with COPY TO", position=position)
        return CopyTo(*tokens.text_from(start), CopyRelation(relation, columns), options)
    condition = tokens.expression() if tokens.take("where") else None
    return CopyFrom(*tokens.text_from(start), relation, columns, options, condition)


def _parse_options(tokens: TokenReader, direction: str) -> Options:
    """STDIN or STDOUT, then options in the new syntax (in parentheses) or the old syntax (without)."""
    if not (tokens.take("stdin") or tokens.take("stdout")):
        if tokens.token.kind is Kind.STRING or tokens.at("program"):
            what = "a program" if tokens.at("program") else "a file"
            raise tokens.not_supported(
                f"COPY {direction} {what}",
                "Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone.",
            )
        raise tokens.syntax_error()
    tokens.take("using")
    delimiters: Options = (("delimiter", tokens.string()),) if tokens.take("delimiters") else ()
    if tokens.take("with") and tokens.at_statement_end:
        raise tokens.syntax_error()
    if tokens.at("("):
        return delimiters + tokens.in_parentheses(lambda: _parse_option(tokens))
    older: Options = delimiters
    while not (tokens.at_statement_end or tokens.at(")", "where")):
        older += (_parse_older_option(tokens),)
    return older


def _parse_option(tokens: TokenReader) -> tuple[str, str | tuple[str, ...] | None]:
    name = tokens.ident(not_names=frozenset()).name
    if tokens.at("("):
        return name, tokens.in_parentheses(lambda: tokens.ident(not_names=RESERVED_WORDS).name)
    if tokens.take("*"):
        return name, "*"
    return name, None if tokens.at(",", ")") else parse_setting_value(tokens)


def _parse_older_option(tokens: TokenReader) -> tuple[str, str | tuple[str, ...] | None]:
    word = tokens.choose(
        "binary", "csv", "freeze", "header", "delimiter", "null", "quote", "escape", "encoding", "force"
    )
    if word in ("binary", "csv"):
        return "format", word
    if word in ("freeze", "header"):
        return word, "true"
    if word != "force":
        if word != "encoding":
            tokens.take("as")
        return word, tokens.string()
    forced = "force_quote" if tokens.take("quote") else "force_not_null" if tokens.take("not") else "force_null"
    if forced != "force_quote":
        tokens.expect("null")
    return forced, "*" if tokens.take("*") else tokens.comma_list(lambda: tokens.ident().name)
