"""VACUUM and ANALYZE, which tools send although there is nothing to do."""

from __future__ import annotations

from server.sql.grammar.statements.maintenance import Maintain
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
    tables = () if tokens.at_statement_end else tokens.comma_list(lambda: _parse_table(tokens))
    return Maintain(*tokens.text_from(start), tag, tables)


def _parse_table(tokens: TokenReader) -> Name:
    table = tokens.name()
    if tokens.at("("):
        tokens.in_parentheses(tokens.ident)
    return table
