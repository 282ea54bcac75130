"""PREPARE, EXECUTE and DEALLOCATE."""

from __future__ import annotations

from protocol.pgwire.types import NAME, OID, PgType
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.queries import refuse_into
from server.sql.grammar.rules.transactions import NO_TWO_PHASES
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.prepared import Deallocate, Execute, Prepare
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader


def parse_prepare(tokens: TokenReader, parse_statement: Rule) -> Prepare:
    start = tokens.index
    tokens.expect("prepare")
    if tokens.at_all("transaction") and tokens.ahead().kind is Kind.STRING:
        raise tokens.not_supported("PREPARE TRANSACTION", NO_TWO_PHASES)
    name = tokens.ident()
    types = tokens.in_parentheses(lambda: _parse_type(tokens)) if tokens.at("(") else ()
    tokens.expect("as")
    if not tokens.at(*QUERY_HEADS, "insert", "update", "delete", "merge"):
        raise tokens.syntax_error()
    statement = parse_statement(tokens)
    refuse_into(statement)
    assert isinstance(statement, Select | Insert | Update | Delete | Merge | WithWrites)
    return Prepare(*tokens.text_from(start), name, types, statement)


def _parse_type(tokens: TokenReader) -> PgType:
    """The type of a parameter. Unlike a column, it can have a type of the system catalogs."""
    for type in (OID, NAME):
        if tokens.take("pg_catalog", ".", type.name) or tokens.take(type.name):
            return type
    return tokens.type(user_defined=True)


def parse_execute(tokens: TokenReader) -> Execute:
    start = tokens.index
    tokens.expect("execute")
    name = tokens.ident()
    arguments = tokens.in_parentheses(lambda: tokens.expression(",")) if tokens.at("(") else ()
    return Execute(*tokens.text_from(start), name, arguments)


def parse_deallocate(tokens: TokenReader) -> Deallocate:
    start = tokens.index
    tokens.expect("deallocate")
    tokens.take("prepare")
    name = None if tokens.take("all") else tokens.ident()
    return Deallocate(*tokens.text_from(start), name)
