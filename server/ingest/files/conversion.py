"""Converts the columns of a file to those of a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from catalog.objects.columns import Column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type


def converted(rows: pa.Table, columns: Sequence[Column], path: Path) -> pa.Table:
    """The rows with the types of the columns, as c0, c1, ..."""
    arrays = []
    for column in columns:
        if column.name not in rows.column_names:
            message = f'file "{path}" has no column "{column.name}"'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
        values = rows[column.name]
        try:
            arrays.append(values.cast(parse_type(column.type).arrow))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            message = f'column "{column.name}" of file "{path}" has type {values.type}, which is not {column.type}'
            raise PgError(SqlState.DATATYPE_MISMATCH, message) from None
        if not column.nullable and values.null_count:
            message = f'null value in column "{column.name}" of file "{path}" violates not-null constraint'
            raise PgError(SqlState.NOT_NULL_VIOLATION, message)
    return pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
