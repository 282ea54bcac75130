"""to_char and its kin (chapter 9.8)."""

from __future__ import annotations

from dataclasses import replace

from protocol.pgwire.errors import PgError, SqlState
from server.sql.expressions import Expression
from server.sql.functions.table import (
    FUNCTIONS,
    literal,
    row,
    text_literal,
)

_TO_CHAR = {
    "YYYY": "yyyy", "MM": "MM", "DD": "dd", "HH24": "HH", "MI": "mm", "SS": "ss", "MS": "SSS", "US": "SSSSSS",
}  # fmt: skip


def _check_format(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Only patterns whose parts both servers write alike: to_char's to Spark's date_format."""
    rest, out = str(literal(args[1], "a format")), []
    while rest:
        token = next((t for t in _TO_CHAR if rest.startswith(t)), None)
        if token is None and (rest[0].isalnum() or rest[0] in "\"'\\"):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f'to_char format at "{rest}" is not supported')
        out.append(_TO_CHAR[token] if token else rest[0] if rest[0] in "-/:. ," else f"'{rest[0]}'")
        rest = rest[len(token) if token else 1 :]
    return (args[0], replace(text_literal(args[1]), value="".join(out)))


row(FUNCTIONS, "to_char", "timestamp text", "text", "date_format({0}, {1})", prepare=_check_format)
row(FUNCTIONS, "to_char", "timestamptz text", "text", "date_format({0}, {1})", prepare=_check_format, zoned=True)
for _a in ("int4", "int8", "float4", "float8", "numeric", "interval"):
    row(FUNCTIONS, "to_char", f"{_a} text", "text", None)
