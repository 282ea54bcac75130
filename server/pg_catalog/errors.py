"""Translates DuckDB's errors to PostgreSQL's."""

from __future__ import annotations

import re

import duckdb

from protocol.pgwire.errors import PgError, SqlState

_TYPES = {
    "UINT32": "oid",
    "INT16": "smallint",
    "INT32": "integer",
    "INT64": "bigint",
    "BOOL": "boolean",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "UINTEGER": "oid",
    "VARCHAR": "text",
    "STRING_LITERAL": "unknown",
    "INTEGER_LITERAL": "integer",
    '"NULL"': "unknown",
    "HUGEINT": "numeric",
    "DECIMAL": "numeric",
    "TIMESTAMP": "timestamp without time zone",
}
"""PostgreSQL's names of DuckDB's types, where the lower-case name is another one."""

_MISSING = {
    "relation": SqlState.UNDEFINED_TABLE,
    "schema": SqlState.INVALID_SCHEMA_NAME,
    "role": SqlState.UNDEFINED_OBJECT,
    "type": SqlState.UNDEFINED_OBJECT,
    "tablespace": SqlState.UNDEFINED_OBJECT,
    "database": SqlState.INVALID_CATALOG_NAME,
}

_MESSAGES: tuple[tuple[str, SqlState, str], ...] = (
    (r'Referenced column "(.*)" not found in FROM clause!', SqlState.UNDEFINED_COLUMN, 'column "{0}" does not exist'),
    (
        r'(?:Table|Values list) "(.*)" does not have a column named "(.*)"',
        SqlState.UNDEFINED_COLUMN,
        "column {0}.{1} does not exist",
    ),
    (r'Referenced table "(.*)" not found!', SqlState.UNDEFINED_TABLE, 'missing FROM-clause entry for table "{0}"'),
    (
        r'Ambiguous reference to column name "(.*)" \(use: .*\)',
        SqlState.AMBIGUOUS_COLUMN,
        'column reference "{0}" is ambiguous',
    ),
    (
        r'column "(.*)" must appear in the GROUP BY clause or must be part of an aggregate function\.',
        SqlState.GROUPING_ERROR,
        'column "{0}" must appear in the GROUP BY clause or be used in an aggregate function',
    ),
    (
        r"(WHERE|GROUP BY) clause cannot contain aggregates!",
        SqlState.GROUPING_ERROR,
        "aggregate functions are not allowed in {0}",
    ),
    (
        "aggregate function calls cannot be nested",
        SqlState.GROUPING_ERROR,
        "aggregate function calls cannot be nested",
    ),
    (
        "ORDER term out of range - .*",
        SqlState.INVALID_COLUMN_REFERENCE,
        "ORDER BY position is not in select list",
    ),
    (
        "Set operations can only apply to expressions with the same number of result columns",
        SqlState.SYNTAX_ERROR,
        "each query of a set operation must have the same number of columns",
    ),
    (r"Subquery returns \d+ columns - expected 1", SqlState.SYNTAX_ERROR, "subquery has too many columns"),
    (
        "More than one row returned by a subquery used as an expression.*",
        SqlState.CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    ),
    ("Division by zero.*", SqlState.DIVISION_BY_ZERO, "division by zero"),
    (r"Overflow in \w+ of (\w+) .*", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "{0} out of range"),
    (
        r"Type \w+ with value .* can't be cast because the value is out of range for the destination type (\w+).*",
        SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
        "{0} out of range",
    ),
    (
        r"""Could not convert string ['"](.*)['"] to (\w+).*""",
        SqlState.INVALID_TEXT_REPRESENTATION,
        'invalid input syntax for type {1}: "{0}"',
    ),
    (
        r'invalid (date|timestamp) field format: "(.*)", expected format is .*',
        SqlState.INVALID_DATETIME_FORMAT,
        'invalid input syntax for type {0}: "{1}"',
    ),
    ('column ".*" of relation ".*" does not exist', SqlState.UNDEFINED_COLUMN, ""),
    ("unrecognized privilege type: .*", SqlState.INVALID_PARAMETER_VALUE, ""),
    ("string is not a valid identifier: .*", SqlState.INVALID_PARAMETER_VALUE, ""),
)
"""Patterns of DuckDB's messages and of those of error() in functions.sql, with the SQLSTATE and the message of
PostgreSQL. An empty message is the one that was matched."""


def pg_error(error: duckdb.Error) -> PgError:
    """The error as PostgreSQL words it; 0A000 if it has no equivalent."""
    text = str(error).partition("\n")[0]
    message = text.partition(": ")[2] or text
    for pattern, state, words in _MESSAGES:
        if (matched := re.fullmatch(pattern, message)) is not None:
            return PgError(state, words.format(*(_TYPES.get(part, part) for part in matched.groups())) or message)
    if (called := re.match(r"No function matches the given name and argument types '(.*)'\. ", message)) is not None:
        return _no_function(called[1])
    if isinstance(error, duckdb.ConversionException):
        return PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
    if isinstance(error, duckdb.InvalidInputException):  # of error() in functions.sql
        if message == "recovery is not in progress":
            hint = "Recovery control functions can only be executed during recovery."
            return PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message, hint=hint)
        if message == "invalid fork name":
            hint = 'Valid fork names are "main", "fsm", "vm", and "init".'
            return PgError(SqlState.INVALID_PARAMETER_VALUE, message, hint=hint)
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


def _no_function(call: str) -> PgError:
    """42883 for a call with DuckDB's names of types, such as `+(VARCHAR, INTEGER_LITERAL)`."""
    name, _, listed = call.removesuffix(")").partition("(")
    types = [_type_text(type) for type in listed.split(", ")]
    if name.isidentifier():
        return PgError(
            SqlState.UNDEFINED_FUNCTION,
            f"function {name}({', '.join(types)}) does not exist",
            hint="No function matches the given name and argument types. You might need to add explicit type casts.",
        )
    operands = f"{types[0]} {name} {types[1]}" if len(types) == 2 else f"{name} {', '.join(types)}"
    return PgError(
        SqlState.UNDEFINED_FUNCTION,
        f"operator does not exist: {operands}",
        hint="No operator matches the given name and argument types. You might need to add explicit type casts.",
    )


def _type_text(type: str) -> str:
    element = type.removesuffix("[]")
    return _TYPES.get(element, element.lower()) + type[len(element) :]
