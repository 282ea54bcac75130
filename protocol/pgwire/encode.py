"""Encodes Arrow batches as DataRow and CopyData messages with column operations. The bytes are those of PostgreSQL.

    RowEncoder(types, formats, style).encode(batch)   -> DataRow messages, concatenated
    CopyEncoder(types, options, style, names)         -> header(), encode(batch), ..., trailer()
    CopyFileEncoder(types).encode(batch)              -> rows of a file of COPY BINARY, without messages

Each message is the concatenation of a struct (the message's header and adjacent fixed-width fields), a column of
varying width, the next struct, and so on. One `binary_join_element_wise` over these parts encodes all rows. Binary rows
with fixed-width columns only are one struct array and need no join. COPY text joins with the delimiter instead, and the
newline of each row is part of the next row's header.
Encoders hold no rows. Their output may be shared by all clients with the same types, formats and style.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import offsets_of
from protocol.pgwire.binary_columns import FixedColumn, VaryingColumn, fixed_column, sized_fixed, varying_column
from protocol.pgwire.copy_options import CopyFormat, CopyOptions, Header
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import (
    DEFAULT_STYLE,
    CsvQuotes,
    OutputStyle,
    copy_escapes,
    plain_column,
    text_column,
)
from protocol.pgwire.types import PgType

__all__ = ["CopyEncoder", "CopyFileEncoder", "OutputStyle", "RowEncoder"]

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_REPLACE_NULL_BY_NOTHING = pc.JoinOptions("replace", "")
_DATA_ROW, _COPY_DATA = ord("D"), ord("d")

CHUNK_ROWS = 16_384  # best measured between 5,000 and 20,000: a chunk's intermediate results stay in the CPU cache
CHUNK_BYTES = 32 << 20  # of Arrow data; the encoding is at most about 40 times as large, so int32 offsets suffice
ROW_BYTES_MAX = 1 << 30  # PostgreSQL's limit of a message

TEXT_FORMAT, BINARY_FORMAT = 0, 1


class RowEncoder:
    """Encodes batches as DataRow messages. `formats` has the result format of each column: 0 text, 1 binary."""

    def __init__(self, types: Sequence[PgType], formats: Sequence[int], style: OutputStyle = DEFAULT_STYLE) -> None:
        self._types = tuple(types)
        self._columns = tuple(
            _text_field(type, style) if format == TEXT_FORMAT else _binary_field(type)
            for type, format in zip(types, formats, strict=True)
        )

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """The batch's rows as messages, in order; b"" for no rows."""
        return in_chunks(batch, self._types, lambda columns, rows: _sized_rows(_DATA_ROW, self._columns, columns, rows))


class CopyEncoder:
    """Encodes batches as CopyData messages, one per row. Call `header`, then `encode` for each batch, then `trailer`.

    `names` are the columns' names, needed for HEADER and FORCE_QUOTE (42703 for an unknown name in FORCE_QUOTE).
    As in PostgreSQL, the first CopyData of COPY BINARY contains the 19-byte file header before the first row.
    `encode_rows` omits that header and has no state: its result can be shared between clients, each of which passes it
    through `frame` of its own encoder.
    """

    def __init__(
        self,
        types: Sequence[PgType],
        options: CopyOptions,
        style: OutputStyle = DEFAULT_STYLE,
        names: Sequence[str] = (),
    ) -> None:
        self._types, self._options, self._names = tuple(types), options, tuple(names)
        self._opening = _SIGNATURE if options.is_binary else b""
        forced = options.positions(options.force_quote, names or [""] * len(types))
        if options.is_binary:
            fields = tuple(_binary_field(type) for type in types)
            self._rows: _ChunkEncoder = lambda columns, rows: _sized_rows(_COPY_DATA, fields, columns, rows)
        else:
            lines = tuple(_line_column(t, options, style, i in forced, len(types) == 1) for i, t in enumerate(types))
            self._rows = _LineEncoder(lines, options).encode

    def header(self) -> bytes:
        """The line of column names as a message, if HEADER is set; else b""."""
        if self._options.header is Header.NONE:
            return b""
        escape = _escapes(self._options, force=False, alone=len(self._names) == 1)
        names = escape(pa.array(self._names, pa.string())).to_pylist() if self._names else []
        return _copy_data(self._options.delimiter.join(names).encode() + b"\n")

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """The batch's rows as messages, in order; b"" for no rows."""
        return bytes(self.frame(self.encode_rows(batch)))

    def encode_rows(self, batch: pa.RecordBatch) -> bytes:
        return in_chunks(batch, self._types, self._rows)

    @property
    def has_begun(self) -> bool:
        """Whether the file header has been sent, so that `frame` changes nothing."""
        return not self._opening

    def frame(self, rows: bytes | memoryview) -> bytes | memoryview:
        """The result of `encode_rows`, with COPY BINARY's file header inserted into the first message of this COPY."""
        if not self._opening or not rows:
            return rows
        length = int.from_bytes(rows[1:5], "big") + len(self._opening)
        framed = b"".join((b"d", length.to_bytes(4, "big"), self._opening, memoryview(rows)[5:]))
        self._opening = b""
        return framed

    def trailer(self) -> bytes:
        """COPY BINARY's end marker, after the file header if there were no rows; b"" for the other formats."""
        if not self._options.is_binary:
            return b""
        opening, self._opening = self._opening, b""
        return _copy_data(opening + CopyFileEncoder.TRAILER)


class CopyFileEncoder:
    """Encodes batches as rows of a file of COPY BINARY, which is `HEADER`, the rows of all batches, and `TRAILER`."""

    HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, no extension
    TRAILER = b"\xff\xff"

    def __init__(self, types: Sequence[PgType]) -> None:
        self._types = tuple(types)
        self._columns = tuple(map(_binary_field, types))

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """The batch's rows, in order; b"" for no rows."""
        return in_chunks(batch, self._types, lambda columns, rows: _sized_rows(None, self._columns, columns, rows))


_SIGNATURE = CopyFileEncoder.HEADER
_ChunkEncoder = Callable[[list[pa.Array], int], bytes]


def _copy_data(payload: bytes) -> bytes:
    return b"d" + (len(payload) + 4).to_bytes(4, "big") + payload


def in_chunks(batch: pa.RecordBatch, types: Sequence[PgType], encode: _ChunkEncoder) -> bytes:
    """Applies `encode` to slices small enough for int32 offsets and the CPU cache."""
    rows = batch.num_rows
    if rows == 0:
        return b""
    if rows <= CHUNK_ROWS and (batch.get_total_buffer_size() <= CHUNK_BYTES or batch.nbytes <= CHUNK_BYTES):
        columns = [plain_column(column, type) for column, type in zip(batch.columns, types, strict=True)]
        return encode(columns, rows)
    if rows == 1:
        if batch.nbytes > ROW_BYTES_MAX // 4:
            _refuse_too_long(batch.nbytes)
        columns = [plain_column(column, type) for column, type in zip(batch.columns, types, strict=True)]
        return encode(columns, rows)
    step = CHUNK_ROWS if rows > CHUNK_ROWS else rows // 2
    return b"".join(in_chunks(batch.slice(start, step), types, encode) for start in range(0, rows, step))


def _refuse_too_long(size: int) -> None:
    raise PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "out of memory",
        detail=f"Cannot encode a row of {size} bytes: a message holds at most {ROW_BYTES_MAX} bytes.",
    )


# ---- rows of sized values: DataRow in both formats, COPY BINARY


@dataclass(frozen=True, slots=True)
class _FixedField:
    """A binary column whose values all have the width of `dtype`. `values` returns them as a numpy array."""

    dtype: np.dtype[Any]
    values: FixedColumn


_Field = _FixedField | VaryingColumn


def _text_field(type: PgType, style: OutputStyle) -> _Field:
    text = text_column(type, style)
    return lambda column: text(column).view(_BINARY)


def _binary_field(type: PgType) -> _Field:
    fixed = fixed_column(type)
    return _FixedField(*fixed) if fixed is not None else varying_column(type)


class _Struct:
    """Adjacent fixed-width fields, encoded as one numpy struct per row."""

    def __init__(self) -> None:
        self.formats: list[Any] = []
        self.values: list[Any] = []

    def add(self, dtype: Any, values: Any) -> None:
        self.formats.append(dtype)
        self.values.append(values)

    def rows(self, count: int) -> NDArray[Any]:
        dtype = _row_dtype(tuple(self.formats))
        rows = np.empty(count, dtype)
        for name, values in zip(dtype.names or (), self.values, strict=True):
            rows[name] = values
        return rows


@cache
def _row_dtype(formats: tuple[Any, ...]) -> np.dtype[Any]:
    return np.dtype([(f"f{index}", format) for index, format in enumerate(formats)])


def _sized_rows(tag: int | None, fields: Sequence[_Field], columns: list[pa.Array], count: int) -> bytes:
    """Messages of tag, length, int16 count of columns, and each value preceded by its int32 length, -1 for NULL.

    `tag` None: without tag and length.
    """
    lengths = np.full(count, 6 + 4 * len(fields), np.int32)
    struct = _Struct()
    if tag is not None:
        struct.add("u1", tag)
        struct.add(">i4", lengths)  # completed below
    struct.add(">i2", len(fields))
    parts: list[_Struct | pa.Array] = []
    for field, column in zip(fields, columns, strict=True):
        if isinstance(field, _FixedField):
            if column.null_count:
                values = sized_fixed(field.dtype, field.values, column)
                lengths += _lengths(values)
                lengths -= 4
                parts += [struct, values]
                struct = _Struct()
            else:
                lengths += field.dtype.itemsize
                struct.add(">i4", field.dtype.itemsize)
                struct.add(field.dtype, field.values(column))
            continue
        values = field(column)
        if values.null_count:
            sizes = pc.binary_length(values)
            struct.add(">i4", pc.fill_null(sizes, -1).to_numpy())
            lengths += pc.fill_null(sizes, 0).to_numpy()
        else:
            sizes = _lengths(values)
            struct.add(">i4", sizes)
            lengths += sizes
        parts += [struct, values]
        struct = _Struct()
    if not parts:
        return struct.rows(count).tobytes()
    if struct.formats:
        parts.append(struct)
    arrays = [_fixed_width(p.rows(count)) if isinstance(p, _Struct) else p for p in parts if not _is_empty(p)]
    return bytes(body_of(pc.call_function("binary_join_element_wise", [*arrays, _EMPTY], _REPLACE_NULL_BY_NOTHING)))


def _is_empty(part: _Struct | pa.Array) -> bool:
    return isinstance(part, _Struct) and not part.formats


def _lengths(array: pa.Array) -> NDArray[np.int32]:
    """Byte lengths of a binary array with at least one row and no nulls."""
    offsets = offsets_of(array)
    return offsets[1:] - offsets[:-1]


_offsets_of_width: dict[int, NDArray[np.int32]] = {}


def _fixed_width(rows: NDArray[Any]) -> pa.Array:
    """A binary array of values of equal width. The offsets of each width are cached."""
    count, width = len(rows), rows.dtype.itemsize
    offsets = _offsets_of_width.get(width)
    if offsets is None or len(offsets) <= count:
        offsets = _offsets_of_width[width] = np.arange(0, width * (max(count, 1024) + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(rows)])


def body_of(array: pa.Array) -> memoryview:
    """The concatenated values of a binary array without nulls."""
    offsets = offsets_of(array)
    return memoryview(array.buffers()[2])[offsets[0] : offsets[-1]]


# ---- lines: COPY text and csv


def _escapes(options: CopyOptions, *, force: bool, alone: bool) -> Callable[[pa.Array], pa.Array]:
    if options.format is CopyFormat.CSV:
        return CsvQuotes(options.delimiter, options.quote, options.escape, options.null, force=force, alone=alone)
    return copy_escapes(options.delimiter)


_PLAIN_IN_COPY = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "date", "time", "timestamp"}
)
_PLAIN_DELIMITERS = frozenset("\t,;|")


def _line_column(
    type: PgType, options: CopyOptions, style: OutputStyle, forced: bool, alone: bool
) -> Callable[[pa.Array], pa.Array]:
    """Text of a column with COPY's escapes or quotes. Types whose text never needs them are not searched."""
    text = text_column(type, style)
    # A CSV value equal to the NULL string must be quoted. No value of these types equals the default, the empty string.
    unambiguous = options.format is CopyFormat.TEXT or (options.null == "" and not forced and options.quote == '"')
    if type.name in _PLAIN_IN_COPY and options.delimiter in _PLAIN_DELIMITERS and unambiguous:
        return text
    escape = _escapes(options, force=forced, alone=alone)
    return lambda column: escape(text(column))


class _LineEncoder:
    """Encodes rows as lines, each in its own CopyData."""

    def __init__(self, columns: Sequence[Callable[[pa.Array], pa.Array]], options: CopyOptions) -> None:
        self._columns = columns
        self._null_length = len(options.null.encode())
        self._replace_null = pc.JoinOptions("replace", options.null)
        self._delimiter = pa.scalar(options.delimiter.encode(), _BINARY)

    def encode(self, columns: list[pa.Array], count: int) -> bytes:
        head = np.empty(count, _LINE_HEAD)
        lengths = np.full(count, 4 + max(len(columns), 1), np.int32)  # delimiters and the newline
        if not columns:
            head["newline"], head["tag"], head["length"] = 10, _COPY_DATA, lengths
            return head.tobytes()[1:] + b"\n"
        texts = [text(column).view(_BINARY) for text, column in zip(self._columns, columns, strict=True)]
        for text in texts:
            if text.null_count:
                lengths += pc.fill_null(pc.binary_length(text), self._null_length).to_numpy()
            else:
                lengths += _lengths(text)
        head["newline"], head["tag"], head["length"] = 10, _COPY_DATA, lengths
        joined = self._join([_fixed_width(head), texts[0]], _EMPTY)
        if len(texts) > 1:
            joined = self._join([joined, *texts[1:]], self._delimiter)
        return b"".join((body_of(joined)[1:], b"\n"))

    def _join(self, arrays: list[pa.Array], separator: pa.Scalar) -> pa.Array:
        return pc.call_function("binary_join_element_wise", [*arrays, separator], self._replace_null)


_LINE_HEAD = np.dtype([("newline", "u1"), ("tag", "u1"), ("length", ">i4")])
