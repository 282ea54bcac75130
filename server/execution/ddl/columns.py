"""The rules for the columns of tables and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import RECORD, RECORD_ARRAY, VOID, PgType
from server.sql.grammar.statements.parts import Ident
from server.sql.scope import SYSTEM_COLUMNS

COLUMNS_MAX = 1_600  # as in PostgreSQL
CHECKS_MAX = 500  # of a table or domain; each is planned by itself, on the event loop
_ROW_HINT = "Name the columns of the row, or make a value of it with to_jsonb()."
_HINTS = {
    RECORD.name: _ROW_HINT,
    RECORD_ARRAY.name: _ROW_HINT,
    VOID.name: "Leave out the function, which has no result.",
}
NO_COLUMNS_HINT = "Give it one constant column, such as true AS present."


def check_columns(columns: Sequence[Ident], kind: str) -> None:
    """The rules for the names of all columns of a table or view, which `kind` tells.

    PgError 42701 for a repeated name, or in a table that of a system column; 54011 for too many, 0A000 for none.
    """
    seen: set[str] = set()
    for column in columns:
        if kind == "table":
            check_column_name(column)
        if column.name in seen:
            raise PgError(
                SqlState.DUPLICATE_COLUMN,
                f'column "{column.name}" specified more than once',
                position=column.position or None,
            )
        seen.add(column.name)
    if len(columns) > COLUMNS_MAX:
        raise PgError(SqlState.TOO_MANY_COLUMNS, f"tables can have at most {COLUMNS_MAX} columns")
    if not columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED, f"{kind}s without columns are not supported", hint=NO_COLUMNS_HINT
        )


def check_column_name(column: Ident) -> None:
    """PgError 42701 if a column of a table has the name of a system column."""
    if column.name in SYSTEM_COLUMNS:
        message = f'column name "{column.name}" conflicts with a system column name'
        raise PgError(SqlState.DUPLICATE_COLUMN, message, position=column.position or None)


def check_types(names: Sequence[Ident], types: Iterable[PgType]) -> None:
    """PgError 42P16 for a column whose values can only be returned: a row, an array of rows, or void."""
    for name, type in zip(names, types, strict=True):
        if type.name in _HINTS:
            message = f'column "{name.name}" has pseudo-type {type.display}'
            raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, hint=_HINTS[type.name])


def check_number_of_checks(checks: Sequence[object], kind: str) -> None:
    """PgError 54000 if a table or domain (`kind`) with these CHECK constraints cannot have another one."""
    if len(checks) >= CHECKS_MAX:
        message = f"{kind} can have at most {CHECKS_MAX} check constraints"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, hint="Combine conditions with AND.")
