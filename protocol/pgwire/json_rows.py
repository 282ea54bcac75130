"""Encodes Arrow batches as JSON with column operations.

    JsonEncoder(types, style).encode(batch)   -> rows: [1,"a"],[2,null]

A row is an array with one value for each column:

| type                                  | JSON                                                        |
|---------------------------------------|-------------------------------------------------------------|
| bool                                  | true, false                                                 |
| int2, int4, oid, float4, float8       | a number; the strings "NaN", "Infinity" and "-Infinity"     |
| json, jsonb                           | the value itself                                            |
| T[]                                   | an array of the elements                                    |
| int8, numeric, and all other types    | a string with PostgreSQL's text: numbers would lose digits  |

The text contains no line breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.columnar.buffers import joined, offsets_of, string_parts, validity
from protocol.pgwire.encode import body_of, in_chunks
from protocol.pgwire.text_columns import DEFAULT_STYLE, Escapes, OutputStyle, TextColumn, plain_column, text_column
from protocol.pgwire.types import INT2VECTOR, NETWORK_TYPES, OIDVECTOR, PgType

_STRING = pa.string()
_NULL_TEXT = pc.JoinOptions("replace", "null")
_QUOTE, _COMMA, _OPEN, _CLOSE = pa.scalar('"'), pa.scalar(","), pa.scalar("["), pa.scalar("]")
_ROW_END = pa.scalar("],")
_NUMBERS = frozenset({"int2", "int4", "oid"})
_FLOATS = frozenset({"float4", "float8"})
_NEVER_ESCAPED = NETWORK_TYPES | {
    *("int8", "numeric", "uuid", "date", "time", "timestamp", "timestamptz", "interval", "mz_timestamp")
}
_LETTERS = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_ESCAPES = Escapes(("".join(_LETTERS) + '"\\').encode(), "\\", _LETTERS)


class JsonEncoder:
    """Encodes batches of rows. `numbers`: the positions of columns of int8 or numeric that are written as numbers."""

    def __init__(
        self, types: Sequence[PgType], style: OutputStyle = DEFAULT_STYLE, numbers: Sequence[int] = ()
    ) -> None:
        self._types = tuple(types)
        self._columns = tuple(
            text_column(type, style) if position in numbers else json_column(type, style)
            for position, type in enumerate(types)
        )

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The batch's rows, in order, in parts that are joined by commas; an empty list for no rows."""
        parts: list[bytes] = []

        def encode(columns: list[pa.Array], rows: int) -> bytes:
            parts.append(self._rows(columns, rows))
            return b""

        in_chunks(batch, self._types, encode)
        return parts

    def _rows(self, columns: list[pa.Array], count: int) -> bytes:
        if not columns:
            return b",".join([b"[]"] * count)
        texts = [_text(column, array) for column, array in zip(self._columns, columns, strict=True)]
        values = pc.call_function("binary_join_element_wise", [*texts, _COMMA], _NULL_TEXT)
        return bytes(body_of(joined(_OPEN, values, _ROW_END))[:-1])


def _text(column: TextColumn, array: pa.Array) -> pa.Array:
    text = column(array)
    return text if text.type == _STRING else text.cast(_STRING)


def json_column(type: PgType, style: OutputStyle) -> TextColumn:
    """The function that converts a column of `type` with at least one row to JSON. Nulls stay null."""
    if type.element is not None and type not in (INT2VECTOR, OIDVECTOR):
        return partial(_array_json, type.item, json_column(type.item, style))
    if type.name == "bool":
        return _bool_json
    text = text_column(type, style)
    if type.name in _NUMBERS:
        return text
    if type.name in _FLOATS:
        return partial(_float_json, text)
    if type.name in ("json", "jsonb"):
        return partial(_one_line, text)
    if type.name in _NEVER_ESCAPED:
        return partial(_quoted, text)
    return partial(_escaped, text)


def _bool_json(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "true", "false")


def _float_json(text: TextColumn, array: pa.Array) -> pa.Array:
    texts = text(array)
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:  # None if all are null
        return texts
    return pc.if_else(finite, texts, joined(_QUOTE, texts, _QUOTE))


def _one_line(text: TextColumn, array: pa.Array) -> pa.Array:
    """JSON text without line breaks, which occur only between its tokens."""
    texts = text(array)
    for line_break in ("\n", "\r"):
        if pc.any(pc.match_substring(texts, line_break)).as_py():
            texts = pc.replace_substring(texts, line_break, " ")
    return texts


def _quoted(text: TextColumn, array: pa.Array) -> pa.Array:
    return joined(_QUOTE, text(array), _QUOTE)


def _escaped(text: TextColumn, array: pa.Array) -> pa.Array:
    return joined(_QUOTE, _without_controls(_ESCAPES(text(array))), _QUOTE)


def _without_controls(texts: pa.Array) -> pa.Array:
    """Escapes the control characters that have no letter."""
    offsets, buffer = string_parts(texts)
    values = buffer[offsets[0] : offsets[-1]]
    if len(values) and values.min() < 32:
        for code in np.unique(values[values < 32]).tolist():
            texts = pc.replace_substring(texts, chr(code), f"\\u{code:04x}")
    return texts


def _array_json(type: PgType, element: Callable[[pa.Array], pa.Array], array: pa.Array) -> pa.Array:
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    text = _text(element, plain_column(values, type)) if last > first else pa.array([], _STRING)
    lists = pa.Array.from_buffers(
        pa.list_(_STRING),
        len(array),
        [validity(array), pa.py_buffer(offsets - offsets[0])],
        array.null_count,
        children=[pc.fill_null(text, "null")],
    )
    return joined(_OPEN, pc.binary_join(lists, ","), _CLOSE)
