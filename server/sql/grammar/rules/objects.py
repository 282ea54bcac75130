"""The kinds of object in CREATE, ALTER, DROP, COMMENT, SHOW CREATE and EXPLAIN."""

from __future__ import annotations

from protocol.pgwire.errors import PgError
from server.sql.grammar.lexer import words
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.token_reader import TokenReader

# Object kinds of CREATE, ALTER and DROP in PostgreSQL or Materialize that Tidewire lacks.
_UNSUPPORTED_KINDS = words(
    """access aggregate cast cluster collation constraint conversion default event extension foreign
    function group language large operator policy procedure publication routine rule server
    sink statistics subscription system tablespace text transform trigger"""
)


def parse_temporary(tokens: TokenReader) -> bool:
    """[[LOCAL | GLOBAL] TEMPORARY]. Returns whether it is there."""
    if tokens.at("local", "global") and tokens.ahead().value in ("temp", "temporary"):
        tokens.advance()
    return tokens.take("temp") or tokens.take("temporary")


def unsupported_kind(tokens: TokenReader, verb: str, *kinds: str) -> PgError:
    """0A000 if the token is a kind that Tidewire lacks or one of `kinds`, which `verb` does not support; else 42601."""
    if tokens.at(*kinds, *_UNSUPPORTED_KINDS):
        return tokens.not_supported(f"{verb} {tokens.token.value.upper()}")
    return tokens.syntax_error()


def parse_object_kind(tokens: TokenReader, verb: str) -> ObjectKind:
    if tokens.take("materialized"):
        tokens.expect("view")
        return ObjectKind.MATERIALIZED_VIEW
    for kind in ObjectKind:
        if tokens.take(kind.value):
            return kind
    raise unsupported_kind(tokens, verb)
