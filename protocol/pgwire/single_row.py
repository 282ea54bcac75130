"""Encodes one row of Python scalars as a DataRow. For constant results, where Arrow's fixed cost would dominate.

Types with a simple encoding are written here. All others use the column encoder, so that PostgreSQL's output rules are
implemented only once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from protocol.pgwire.encode import RowEncoder
from protocol.pgwire.scalars import column_of
from protocol.pgwire.text_columns import OutputStyle
from protocol.pgwire.types import PgType

_INT_TEXT: Callable[[Any], bytes] = lambda value: b"%d" % value  # noqa: E731
_TEXT: Callable[[Any], bytes] = str.encode
_PLAIN: tuple[dict[str, Callable[[Any], bytes]], dict[str, Callable[[Any], bytes]]] = (
    {
        **dict.fromkeys(("int2", "int4", "int8"), _INT_TEXT),
        **dict.fromkeys(("text", "varchar", "bpchar", "unknown", "json", "jsonb", "uuid"), _TEXT),
        "bool": lambda value: b"t" if value else b"f",
    },
    {
        "int2": struct.Struct("!h").pack,
        "int4": struct.Struct("!i").pack,
        "int8": struct.Struct("!q").pack,
        "float8": struct.Struct("!d").pack,
        "bool": struct.Struct("!?").pack,
        **dict.fromkeys(("text", "varchar", "bpchar", "unknown", "json"), _TEXT),
    },
)


Writer = Callable[[Sequence[Any]], bytes]
_NULL = b"\xff\xff\xff\xff"
_LENGTH = struct.Struct("!i")
_HEAD = struct.Struct("!cih")


def row_writer(types: Sequence[PgType], formats: Sequence[int], style: OutputStyle) -> Writer:
    """A function that encodes values, Python scalars as listed in `types`, as a DataRow in the given formats."""
    writers = [_PLAIN[format].get(type.name) for type, format in zip(types, formats, strict=True)]
    count = len(writers)

    def written(values: Sequence[Any]) -> bytes:
        parts: list[bytes] = []
        for write, value in zip(writers, values, strict=True):
            if value is None:
                parts.append(_NULL)
            elif write is None:
                return _encode_columns(types, formats, values, style)
            else:
                data = write(value)
                parts.append(_LENGTH.pack(len(data)))
                parts.append(data)
        body = b"".join(parts)
        return _HEAD.pack(b"D", len(body) + 6, count) + body

    return written


def _encode_columns(
    types: Sequence[PgType], formats: Sequence[int], values: Sequence[Any], style: OutputStyle
) -> bytes:
    columns = [column_of(type, [value]) for type, value in zip(types, values, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    return RowEncoder(types, formats, style).encode(batch)
