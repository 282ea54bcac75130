"""PostgreSQL's types that are not supported, and what to use instead."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import words

_OTHER_TYPES = words(
    """bit varbit box circle line lseg path point polygon money name oid xml tsvector tsquery
    timetz xid xid8 cid tid regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
    regprocedure regrole regtype pg_lsn jsonpath int4range int8range numrange daterange tsrange tstzrange record
    refcursor aclitem pg_snapshot txid_snapshot int2vector oidvector"""
)
"""The names of these types."""
_RANGE = "Use two columns, for the lower and the upper bound."
_GEOMETRY = "Use a column of type double precision for each coordinate."
_INSTEAD = {
    "money": "Use numeric(12, 2).",
    "timetz": "Use time, or timestamp with time zone.",
    "bit": "Use bytea, or an integer with the operators & and |.",
    "varbit": "Use bytea, or an integer with the operators & and |.",
    **dict.fromkeys(("xml", "ltree", "hstore"), "Use text."),
    "tsvector": "Search texts with ILIKE or regular expressions.",
    "tsquery": "Search texts with ILIKE or regular expressions.",
    "jsonpath": "Write the path as a string: jsonb_path_query(j, '$.a').",
    **dict.fromkeys(("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"), _RANGE),
    **dict.fromkeys(("point", "box", "circle", "line", "lseg", "path", "polygon"), _GEOMETRY),
}
"""What to use instead of text."""


def refused_type(name: str, position: int | None) -> PgError | None:
    """0A000 for the name of a type that PostgreSQL has and Tidewire does not support; None for other names."""
    if name not in _OTHER_TYPES and name != '"char"':
        return None
    hint = _INSTEAD.get(name, "Use text.")
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"type {name} is not supported", hint=hint, position=position)
