"""Errors for rows that violate the KEY of a sink."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import DEFAULT_STYLE, plain_column, text_column
from protocol.pgwire.types import parse_type
from server.egress.net_changes import KeyViolation
from server.egress.sink_kind import SinkDefinition


def key_error(violation: KeyViolation, definition: SinkDefinition, hint: str) -> PgError:
    """The error that names the key. `hint`: of the error for a key that is not unique."""
    columns = {column.name: column for column in definition.columns}
    values = []
    for name, column in zip(definition.key, violation.row.columns, strict=True):
        type = parse_type(columns[name].type)
        text = text_column(type, DEFAULT_STYLE)(plain_column(column.combine_chunks(), type))[0].as_py()
        values.append("null" if text is None else str(text))
    shown = f"({', '.join(definition.key)})=({', '.join(values)})"
    if violation.is_null:
        message = f'a row of "{definition.on}" has a null value in the key {shown}'
        return PgError(SqlState.NOT_NULL_VIOLATION, message)
    return PgError(SqlState.UNIQUE_VIOLATION, f'several rows of "{definition.on}" have the key {shown}', hint=hint)
