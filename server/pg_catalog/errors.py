"""Translates DuckDB's errors to PostgreSQL's."""

from __future__ import annotations

import re

import duckdb

from protocol.pgwire.errors import PgError, SqlState

_UNREAD = {"UINT32": "oid", "INT16": "smallint", "INT32": "integer", "INT64": "bigint", "BOOL": "boolean"}


_MISSING = {
    "relation": SqlState.UNDEFINED_TABLE,
    "schema": SqlState.INVALID_SCHEMA_NAME,
    "role": SqlState.UNDEFINED_OBJECT,
    "type": SqlState.UNDEFINED_OBJECT,
}


def pg_error(error: duckdb.Error) -> PgError:
    text = str(error).partition("\n")[0]
    message = text.partition(": ")[2] or text
    if isinstance(error, duckdb.BinderException) and "not found" in text:
        return PgError(SqlState.UNDEFINED_COLUMN, message)
    if isinstance(error, duckdb.ConversionException):
        unread = re.fullmatch(r"Could not convert string '(.*)' to (\w+)", message)
        if unread is not None:
            type = _UNREAD.get(unread[2], unread[2].lower())
            message = f'invalid input syntax for type {type}: "{unread[1]}"'
        return PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
    if isinstance(error, duckdb.InvalidInputException):  # of error() in functions.sql
        if message == "recovery is not in progress":
            hint = "Recovery control functions can only be executed during recovery."
            return PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message, hint=hint)
        if message.startswith(("unrecognized privilege type: ", "string is not a valid identifier: ")):
            return PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        missing = re.fullmatch(r'(\w+) ".*" does not exist', message)
        if missing is not None and missing[1] in _MISSING:
            return PgError(_MISSING[missing[1]], message)
    if isinstance(error, duckdb.CatalogException):
        return PgError(SqlState.UNDEFINED_FUNCTION, message)
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "this query over system catalogs is not supported",
        detail=message,
        hint="Write the query with joins instead of nested queries, or query mz_objects and mz_columns.",
    )
