"""Encodes the rows of a table as Avro records, all rows together.

A column becomes one or two arrays of bytes, which Arrow joins row by row. `fields_of` has the schema:

    int2, int4      int                         numeric         bytes, decimal: 16 bytes
    int8            long                        text, varchar   string
    float4, float8  float, double               bytea           bytes
    bool            boolean                     json, jsonb     string with Connect's name of JSON
    date            int, date                   uuid            string, uuid
    time            long, time-micros           other types     string, as PostgreSQL prints them
    timestamp, timestamptz                      long, timestamp-micros

A nullable column is a union of null and its type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.avro.varints import encoded_varints
from protocol.columnar.buffers import fixed_values, offsets_of, validity
from protocol.pgwire.text_columns import DEFAULT_STYLE, plain_column, text_column
from protocol.pgwire.types import BARE_NUMERIC_SCALE, NUMERIC_PRECISION_MAX, PgType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JOIN = pc.JoinOptions("replace", "")
_NOTHING = pa.scalar(b"", pa.binary())
_NULL, _VALUE = pa.scalar(b"\x00", pa.binary()), pa.scalar(b"\x02", pa.binary())  # branches of a nullable type
_DECIMAL_BYTES = 16
_TYPES: dict[str, Any] = {
    "bool": "boolean",
    "int2": "int",
    "int4": "int",
    "int8": "long",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "varchar": "string",
    "bytea": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "json": {"type": "string", "connect.name": "io.debezium.data.Json"},
    "jsonb": {"type": "string", "connect.name": "io.debezium.data.Json"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column of the rows to encode."""

    name: str
    type: PgType
    nullable: bool = True


def fields_of(columns: Sequence[EncodedColumn]) -> list[dict[str, Any]]:
    """The fields of the record's schema. ValueError if Avro does not allow a name, or if one is repeated."""
    names = [column.name for column in columns]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f'column "{name}" has a name that Avro does not allow')
        if names.count(name) > 1:
            raise ValueError(f'column "{name}" is specified more than once')
    found = []
    for column in columns:
        type = _schema_of(column.type)
        found.append({"name": column.name, "type": ["null", type] if column.nullable else type})
    return found


def encoded_records(columns: Sequence[EncodedColumn], rows: pa.Table) -> pa.BinaryArray:
    """The bytes of each row's record. The rows must have less than 2 GiB of bytes."""
    if not rows.num_rows:
        return pa.array([], pa.binary())
    parts: list[Any] = []
    for column, values in zip(columns, rows.columns, strict=True):
        parts += _parts(column, plain_column(values.combine_chunks(), column.type))
    if not parts:
        return pa.repeat(_NOTHING, rows.num_rows)
    return pc.call_function("binary_join_element_wise", [*parts, _NOTHING], _JOIN)


def _schema_of(type: PgType) -> Any:
    if type.name == "numeric":
        precision, scale = _decimal_of(type)
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return _TYPES.get(type.name, "string") if type.element is None else "string"


def _decimal_of(type: PgType) -> tuple[int, int]:
    arrow = type.arrow
    if pa.types.is_decimal(arrow):
        return arrow.precision, arrow.scale
    return NUMERIC_PRECISION_MAX, BARE_NUMERIC_SCALE


def _parts(column: EncodedColumn, values: pa.Array) -> list[pa.Array]:
    """Arrays whose elements, joined row by row, are the encoded values. NULL adds no bytes."""
    branch = [pc.if_else(values.is_null(), _NULL, _VALUE)] if column.nullable else []
    if values.null_count == len(values):
        return branch
    match _schema_of(column.type):
        case "boolean":
            return [*branch, pc.if_else(values, pa.scalar(b"\1", pa.binary()), pa.scalar(b"\0", pa.binary()))]
        case "float" | "double" as name:
            size = 4 if name == "float" else 8
            return [*branch, _fixed(fixed_values(values, f"V{size}"), size, values)]
        case "int" | "long" | {"type": "int" | "long"}:
            width = values.type.bit_width // 8
            return [*branch, _varints(fixed_values(values, f"<i{width}").astype(np.int64), values)]
        case {"logicalType": "decimal", "scale": int(scale)}:
            return [*branch, _decimals(values, scale)]
        case "bytes":
            return [*branch, *_sized(values)]
        case _:
            text = values if pa.types.is_string(values.type) else text_column(column.type, DEFAULT_STYLE)(values)
            return [*branch, *_sized(text.view(pa.binary()))]


def _sized(values: pa.BinaryArray) -> list[pa.Array]:
    lengths = np.diff(offsets_of(values)).astype(np.int64)
    return [_varints(lengths, values), values]


def _varints(numbers: Any, like: pa.Array) -> pa.BinaryArray:
    found = encoded_varints(numbers)
    return found if not like.null_count else pc.if_else(like.is_valid(), found, pa.scalar(None, pa.binary()))


def _fixed(values: Any, size: int, like: pa.Array) -> pa.BinaryArray:
    """Values of `size` bytes each."""
    offsets = np.arange(len(like) + 1, dtype=np.int32) * size
    buffers = [validity(like), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(like), buffers, like.null_count)


def _decimals(values: pa.Array, scale: int) -> pa.BinaryArray:
    """The length, and unscaled numbers, big-endian two's complement."""
    if not pa.types.is_decimal128(values.type):
        values = values.cast(pa.decimal128(NUMERIC_PRECISION_MAX, scale))
    digits = fixed_values(values, f"V{_DECIMAL_BYTES}").view(np.uint8).reshape(len(values), _DECIMAL_BYTES)[:, ::-1]
    sized = np.empty((len(values), _DECIMAL_BYTES + 1), np.uint8)
    sized[:, 0] = 2 * _DECIMAL_BYTES
    sized[:, 1:] = digits
    return _fixed(sized, _DECIMAL_BYTES + 1, values)
