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

TABLESPACE_HINT = "Omit it: all data is in the data directory of the server (--data-dir)."
_COMPUTE = "Define a view with the query, or compute in the client."
_REACT = "A materialized view is kept up to date when its tables change, and SUBSCRIBE sends the changes to a client."
# What to do instead.
_HINTS = {
    "aggregate": _COMPUTE,
    "collation": 'Text is compared by its bytes, as under the collation "C".',
    "event": _REACT,
    "extension": "Functions such as gen_random_uuid() are built in.",
    "foreign": "CREATE SOURCE ... FROM POSTGRES keeps copies of the tables of another server.",
    "function": _COMPUTE,
    "policy": "Grant SELECT on a view with the condition, instead of the table.",
    "procedure": "Send the statements between BEGIN and COMMIT.",
    "publication": "CREATE SINK and SUBSCRIBE send the changes of a table.",
    "rule": _REACT,
    "server": "CREATE CONNECTION describes another server, from which CREATE SOURCE reads.",
    "subscription": "CREATE SOURCE ... FROM POSTGRES follows the tables of a publication.",
    "tablespace": "All data is in the data directory of the server (--data-dir).",
    "trigger": _REACT,
}


def parse_temporary(tokens: TokenReader) -> bool:
    """[[LOCAL | GLOBAL] TEMPORARY]. Returns whether it is there."""
    if tokens.at("local", "global") and tokens.ahead().value in ("temp", "temporary"):
        tokens.advance()
    return tokens.take("temp") or tokens.take("temporary")


def unsupported_kind(tokens: TokenReader, verb: str, *kinds: str) -> PgError:
    """0A000 if the token is a kind that Tidewire lacks or one of `kinds`, which `verb` does not support; else 42601."""
    if tokens.at(*kinds, *_UNSUPPORTED_KINDS):
        kind = tokens.token.value
        return tokens.not_supported(f"{verb} {kind.upper()}", _HINTS.get(kind) if verb == "CREATE" else None)
    return tokens.syntax_error()


def parse_object_kind(tokens: TokenReader, verb: str) -> ObjectKind:
    if tokens.take("materialized"):
        tokens.expect("view")
        return ObjectKind.MATERIALIZED_VIEW
    for kind in ObjectKind:
        if tokens.take(kind.value):
            return kind
    raise unsupported_kind(tokens, verb)
