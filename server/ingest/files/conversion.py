"""Converts the columns of a file to those of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects.columns import Column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type

_SHOWN_CHARACTERS = 100  # of a value in an error


def converted(rows: pa.Table, columns: Sequence[Column], path: Path, place: Callable[[int], str]) -> pa.Table:
    """The rows with the types of the columns, as c0, c1, ...

    `place(row)`: where a row is in the file. PgError if a column is missing, or a value cannot be converted.
    """
    arrays = []
    for column in columns:
        if column.name not in rows.column_names:
            message = f'file "{path}" has no column "{column.name}"'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
        values = rows[column.name]
        type = parse_type(column.type).arrow
        try:
            arrays.append(values.cast(type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if (row := _first_refused(values, type)) is None:
                message = f'column "{column.name}" of file "{path}" has type {values.type}, which is not {column.type}'
                raise PgError(SqlState.DATATYPE_MISMATCH, message) from None
            value = str(values[row])
            shown = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
            message = f'file "{path}", {place(row)}, column {column.name}: cannot convert "{shown}" to {column.type}'
            raise PgError(SqlState.BAD_COPY_FILE_FORMAT, message) from None
        if not column.nullable and values.null_count:
            row = int(pc.index(values.is_null(), True).as_py())
            message = f'file "{path}", {place(row)}: {null_message(column)}'
            raise PgError(SqlState.NOT_NULL_VIOLATION, message)
    return pa.table(arrays, [f"c{number}" for number in range(len(arrays))])


def null_message(column: Column) -> str:
    """The message for NULL in a column that is NOT NULL."""
    return f'null value in column "{column.name}" violates not-null constraint'


def _first_refused(values: pa.ChunkedArray, type: pa.DataType) -> int | None:
    """The first value that cannot be cast to a type; None if no value can."""
    if not _can_cast(values.slice(0, 0), type):
        return None
    start, count = 0, len(values)
    while count > 1:  # the first refused value is among the `count` values from `start` on
        half = count // 2
        if _can_cast(values.slice(start, half), type):
            start, count = start + half, count - half
        else:
            count = half
    return start


def _can_cast(values: pa.ChunkedArray, type: pa.DataType) -> bool:
    try:
        values.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
