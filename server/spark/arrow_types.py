"""The Arrow types of the tables that are exchanged with Spark.

Warning: Spark reads the buffers of a record batch as its own types without a check. Therefore each table is first cast
to exactly Spark's Arrow layout (time in nanoseconds, timestamps in microseconds, 32-bit offsets). Spark can neither
export its intervals to Arrow nor compare them, so an interval is sent as a struct {months, days, us}. The other structs
are rows {f0, f1, ...}.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.pgwire.errors import PgError, SqlState

UTC = "UTC"
_SPARK_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("ns"): "time(6)",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", UTC): "timestamp",
}
_INTERVAL = pa.month_day_nano_interval()
_PARTS = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("us", pa.int64())])
_PARTS_NAMES = [field.name for field in _PARTS]
_INTERVAL_LAYOUT = np.dtype([("months", np.int32), ("days", np.int32), ("ns", np.int64)])
_INTERVAL_US_MAX = ((1 << 63) - 1) // 1000


def to_spark(table: pa.Table) -> pa.Table:
    """Returns the table in Spark's Arrow layout, with intervals as structs."""
    return _cast(table, _schema(table.schema, "ns"))


def from_spark(table: pa.Table) -> pa.Table:
    """Returns the table with the Arrow types of protocol.pgwire.types: time in us, 32-bit offsets, no metadata.

    PgError 22008 for an interval whose microseconds do not fit into 64-bit nanoseconds.
    """
    return _cast(table, _schema(table.schema, "us"))


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [_cast_column(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if _has_intervals(kind) and column.type != kind:
        return pa.chunked_array([_cast_intervals(chunk, kind) for chunk in column.chunks], kind)
    return column.cast(kind)


def _has_intervals(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_intervals(kind.value_type)
    return kind in (_INTERVAL, _PARTS) or (pa.types.is_struct(kind) and any(_has_intervals(f.type) for f in kind))


def _cast_intervals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array cast to `kind`, with intervals as structs or structs as intervals, also inside lists and rows."""
    if not _has_intervals(kind):
        return array.cast(kind)
    if pa.types.is_list(kind):
        values = _cast_intervals(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[values])
    if pa.types.is_struct(kind) and kind != _PARTS:
        fields = [_cast_intervals(part, field.type) for part, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    return _parts_to_intervals(array) if pa.types.is_struct(array.type) else _intervals_to_parts(array)


def _intervals_to_parts(array: pa.Array) -> pa.Array:
    data = array.buffers()[1]
    values = np.frombuffer(data or b"", _INTERVAL_LAYOUT)[array.offset :][: len(array)]
    columns = [pa.array(values["months"]), pa.array(values["days"]), pa.array(values["ns"] // 1000)]
    return pa.StructArray.from_arrays(columns, fields=list(_PARTS), mask=array.is_null())


def _parts_to_intervals(array: pa.Array) -> pa.Array:
    """PgError 22008 if the microseconds overflow Arrow's 64-bit nanoseconds."""
    months, days, us = (pc.fill_null(array.field(i), 0).to_numpy() for i in range(3))
    if len(us) and (us.max() > _INTERVAL_US_MAX or us.min() < -_INTERVAL_US_MAX):
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
    values = np.empty(len(array), _INTERVAL_LAYOUT)
    values["months"], values["days"], values["ns"] = months, days, us * 1000
    valid = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(_INTERVAL, len(array), [valid, pa.py_buffer(values)])


@lru_cache(1024)
def _schema(schema: pa.Schema, time_unit: str) -> pa.Schema:
    return pa.schema([pa.field(column.name, _plain(column.type, time_unit)) for column in schema])


def _plain(kind: pa.DataType, time_unit: str) -> pa.DataType:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type, time_unit))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time(kind):
        return pa.time64(time_unit)
    if types.is_timestamp(kind):
        return pa.timestamp("us", UTC if kind.tz else None)
    if kind == _INTERVAL or (types.is_struct(kind) and [field.name for field in kind] == _PARTS_NAMES):
        return _INTERVAL if time_unit == "us" else _PARTS
    if types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type, time_unit)) for field in kind])
    return kind


@lru_cache(1024)
def spark_schema(schema: pa.Schema) -> str:
    """Returns Spark's StructType for an Arrow schema, as JSON. TypeError for a type that Spark does not have."""
    columns = [
        {"name": column.name, "type": _spark_type(column.type), "nullable": True, "metadata": {}}
        for column in _schema(schema, "ns")
    ]
    return json.dumps({"type": "struct", "fields": columns})


def _spark_type(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        fields = [{"name": f.name, "type": _spark_type(f.type), "nullable": True, "metadata": {}} for f in kind]
        return {"type": "struct", "fields": fields}
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kind not in _SPARK_NAMES:
        raise TypeError(f"Spark has no type for Arrow's {kind}")
    return _SPARK_NAMES[kind]
