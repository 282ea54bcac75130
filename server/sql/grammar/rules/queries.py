"""SELECT, VALUES, TABLE and WITH, AS OF, and SELECT INTO."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.objects import parse_temporary
from server.sql.grammar.rules.tables import AS_OF_HINT
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.queries import AsOf, Select
from server.sql.grammar.statements.tables import CreateTableAs
from server.sql.grammar.token_reader import TokenReader

# The words that end a select list without INTO.
_BEFORE_INTO = ("from", "where", "having", "union", "intersect", "except", "order", "limit", "offset")


def parse_select(tokens: TokenReader) -> Select | CreateTableAs:
    start = tokens.index
    if tokens.at("select", "with") and _to_into(tokens):
        return _parse_select_into(tokens, start)
    query = tokens.query()
    as_of = parse_as_of(tokens) if tokens.at("as") else None
    return Select(*tokens.text_from(start), query, as_of)


def _to_into(tokens: TokenReader) -> bool:
    """Moves to the INTO after the select list. Returns False, and does not move, if there is none."""
    mark = tokens.index
    if tokens.at("with"):
        tokens.span("select", "values", "table")
    if tokens.at("select"):
        tokens.span("into", *_BEFORE_INTO)
    if tokens.at("into"):
        return True
    tokens.move_to(mark)
    return False


def _parse_select_into(tokens: TokenReader, start: int) -> CreateTableAs:
    """The part of SELECT ... INTO [TABLE] name ... from INTO."""
    into = tokens.index
    tokens.advance()
    temporary = parse_temporary(tokens)
    if not temporary:
        tokens.take("unlogged")  # all tables are durable
    tokens.take("table")
    name = tokens.name()
    rest = tokens.span(query=True)
    tokens.reject("AS OF in SELECT INTO", "as", hint=AS_OF_HINT)
    query = tokens.parsed_query((*tokens.tokens[start:into], *rest), *tokens.text_from(start))
    return CreateTableAs(*tokens.text_from(start), name, (), query, False, "SELECT INTO", temporary=temporary)


def refuse_into(statement: Statement) -> None:
    """42601 for a SELECT INTO that is part of another statement."""
    if isinstance(statement, CreateTableAs):
        raise PgError(SqlState.SYNTAX_ERROR, "SELECT ... INTO is not allowed here", position=statement.name.position)


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
