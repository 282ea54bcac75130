"""Errors for rows that violate the KEY of a sink."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import DEFAULT_STYLE, value_text
from protocol.pgwire.types import parse_type
from server.egress.net_changes import KeyViolation
from server.egress.sink_kind import SinkDefinition


def key_error(violation: KeyViolation, definition: SinkDefinition, hint: str) -> PgError:
    """The error that names the key. `hint`: of the error for a key that is not unique."""
    columns = {column.name: column for column in definition.columns}
    values = []
    for name, column in zip(definition.key, violation.row.columns, strict=True):
        text = value_text(column, 0, parse_type(columns[name].type), DEFAULT_STYLE)
        values.append("null" if text is None else text)
    shown = f"({', '.join(definition.key)})=({', '.join(values)})"
    if violation.is_null:
        message = f'a row of "{definition.on}" has a null value in the key {shown}'
        return PgError(SqlState.NOT_NULL_VIOLATION, message)
    return PgError(SqlState.UNIQUE_VIOLATION, f'several rows of "{definition.on}" have the key {shown}', hint=hint)
