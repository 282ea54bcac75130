"""Enumerated types in sinks: external systems get labels, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from catalog.ids import types_in
from catalog.objects.columns import Column
from protocol.pgwire.enums import Enum
from protocol.pgwire.types import TEXT, PgType, array_of, parse_type


def text_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with text in place of enumerated types."""
    return tuple(
        replace(column, type=str(_text_type(parse_type(column.type)))) if types_in(column.type) else column
        for column in columns
    )


def with_labels(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Rows or updates of a collection with labels in place of positions. `columns`: of the collection."""
    for number, column in enumerate(columns):
        if types_in(column.type):
            type = parse_type(column.type)
            enum = (type.element or type).enum
            assert enum is not None
            found = rows.column(number)
            chunks = [_labels(enum, chunk) for chunk in found.chunks]
            rows = rows.set_column(number, rows.schema.names[number], pa.chunked_array(chunks, _text_type(type).arrow))
    return rows


def _text_type(type: PgType) -> PgType:
    return TEXT if type.element is None else array_of(TEXT, type.dimensions)


def _labels(enum: Enum, positions: pa.Array) -> pa.Array:
    if not pa.types.is_list(positions.type):
        return enum.label_column(positions)
    whole = pa.concat_arrays([positions])  # without an offset, which `mask` requires
    mask = whole.is_null() if whole.null_count else None
    return pa.ListArray.from_arrays(whole.offsets, _labels(enum, whole.values), mask=mask)
