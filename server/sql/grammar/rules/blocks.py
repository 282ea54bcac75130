"""DO with a block of PL/pgSQL that has one definition, as the scripts of ORMs have it.

DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN duplicate_object THEN NULL; END $$
"""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import words
from server.sql.grammar.rules import Rule
from server.sql.grammar.statements.blocks import DoBlock, InBlock
from server.sql.grammar.token_reader import TokenReader

_PLPGSQL = words("assert case continue exit for foreach get if loop null perform raise return while")
"""The words with which statements begin that only PL/pgSQL has."""
_HINT = "A block can have one statement that defines something, and EXCEPTION handlers that do nothing."


def parse_do(tokens: TokenReader, parse_statement: Rule) -> DoBlock:
    """DO [LANGUAGE plpgsql] 'block' [LANGUAGE plpgsql]. Errors in the block have no position in the text."""
    start = tokens.index
    tokens.expect("do")
    _parse_language(tokens)
    body = tokens.string()
    _parse_language(tokens)
    try:
        statement, handled = _parse_block(TokenReader(body), parse_statement)
    except PgError as error:
        error.position = None
        raise
    return DoBlock(*tokens.text_from(start), statement, handled)


def _parse_language(tokens: TokenReader) -> None:
    if tokens.take("language"):
        language = tokens.ident()
        if language.name != "plpgsql":
            message = f'language "{language.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_OBJECT, message, position=language.position)


def _parse_block(tokens: TokenReader, parse_statement: Rule) -> tuple[InBlock, tuple[str, ...]]:
    """BEGIN statement; [EXCEPTION WHEN condition [OR ...] THEN NULL; ...] END [;]"""
    tokens.reject("DO with variables", "declare", hint=_HINT)
    tokens.expect("begin")
    tokens.reject("DO with statements of PL/pgSQL", *_PLPGSQL, hint=_HINT)
    statement = parse_statement(tokens)
    if not isinstance(statement, InBlock):
        raise tokens.not_supported("DO with this statement", _HINT)
    tokens.expect(";")
    handled: list[str] = []
    if tokens.take("exception"):
        tokens.expect("when")
        handled += _parse_handler(tokens)
        while tokens.take("when"):
            handled += _parse_handler(tokens)
    if not tokens.take("end"):
        raise tokens.not_supported("DO with several statements", _HINT)
    tokens.take(";")
    tokens.expect_end()
    return statement, tuple(handled)


def _parse_handler(tokens: TokenReader) -> list[str]:
    """condition [OR condition ...] THEN NULL; returns the SQLSTATEs."""
    states = [_parse_condition(tokens)]
    while tokens.take("or"):
        states.append(_parse_condition(tokens))
    tokens.expect("then")
    if not tokens.take("null", ";"):
        raise tokens.not_supported("an EXCEPTION handler with statements", _HINT)
    return states


def _parse_condition(tokens: TokenReader) -> str:
    """The name of an error condition, such as duplicate_object, or SQLSTATE 'xxxxx'."""
    if tokens.take("sqlstate"):
        return tokens.string()
    name = tokens.ident().name
    if name == "others":
        return DoBlock.OTHERS
    if name.upper() not in SqlState.__members__:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized exception condition "{name}"')
    return SqlState[name.upper()]
