"""Converts Arrow columns to PostgreSQL's binary values (the `*send` functions) with column operations.

The values of a fixed-width type are a numpy array (`FixedColumn`), those of other types an Arrow binary array
(`VaryingColumn`). The encoder merges adjacent fixed-width columns and their lengths into one struct per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values, offsets_of, starts_of, string_array, string_parts
from protocol.pgwire.datetime_input import POSTGRES_EPOCH_DAYS
from protocol.pgwire.datetime_output import DAY_US
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.network import sent_column
from protocol.pgwire.scalars import column_of, parse_text
from protocol.pgwire.text_columns import INTERVAL
from protocol.pgwire.types import TEXT, VOID, PgType, array_of

_BINARY = pa.binary()
POSTGRES_EPOCH_US = POSTGRES_EPOCH_DAYS * DAY_US

FixedColumn = Callable[[pa.Array], NDArray[Any]]
VaryingColumn = Callable[[pa.Array], pa.Array]


def fixed_column(type: PgType) -> tuple[np.dtype[Any], FixedColumn] | None:
    """The dtype of a fixed-width type in binary format and the function that computes its values; None for other types.

    The values may have any byte order, because they are assigned to a struct field of the dtype. Values at nulls are
    arbitrary.
    """
    return _FIXED.get(type.name)


def varying_column(type: PgType) -> VaryingColumn:
    """The function that converts a column of `type` to a binary array of its values; nulls stay null."""
    if type.element is not None:
        return partial(_arrays, type, type.element)
    if type.name == "numeric":
        return partial(_numerics, type.scale or 0, type.hides_zeros)
    if type.sent is not None:
        return partial(_records, type.sent)
    if type.name in ("inet", "cidr"):
        return partial(sent_column, is_cidr=type.name == "cidr")
    if type.enum is not None:
        enum = type.enum
        return lambda column: _bytes(enum.label_column(column))
    return _VARYING.get(type.name, _bytes)


def masked_rows(rows: NDArray[Any], keep: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The bytes of an array of structs where the mask `keep` (rows x itemsize) is True, in order."""
    return rows.view(np.uint8).reshape(keep.shape)[keep]


def _days(array: pa.Array) -> NDArray[Any]:
    return _since_2000(fixed_values(array, np.int32), POSTGRES_EPOCH_DAYS)


def _instants(array: pa.Array) -> NDArray[Any]:
    return _since_2000(fixed_values(array, np.int64), POSTGRES_EPOCH_US)


def _since_2000(since_1970: NDArray[Any], epoch: int) -> NDArray[Any]:
    """Days or microseconds since 2000. The least and greatest integers are infinities, which have no epoch."""
    limits = np.iinfo(since_1970.dtype)
    sent = since_1970 - since_1970.dtype.type(epoch)
    infinite = (since_1970 == limits.max) | (since_1970 == limits.min)
    return np.where(infinite, since_1970, sent) if infinite.any() else sent


def _bools(array: pa.Array) -> NDArray[Any]:
    return np.asarray(pc.fill_null(array, False)).view(np.uint8)


def _intervals(array: pa.Array) -> NDArray[Any]:
    given = fixed_values(array, INTERVAL)
    sent = np.empty(len(array), _INTERVAL_SENT)
    sent["us"], sent["days"], sent["months"] = given["ns"] // 1000, given["days"], given["months"]
    return sent


NIBBLE = np.full(256, 255, np.uint8)  # the value of a hexadecimal digit, 255 for any other byte
for _digit in range(16):
    NIBBLE[[ord(f"{_digit:x}"), ord(f"{_digit:X}")]] = _digit
UUID_DASHES = np.isin(np.arange(36), [8, 13, 18, 23])


def _uuids(array: pa.Array) -> NDArray[Any]:
    offsets, values = string_parts(pc.fill_null(array, _NO_UUID))
    digits = NIBBLE[values[offsets[0] : offsets[-1]].reshape(-1, 36)[:, ~UUID_DASHES]]
    return np.ascontiguousarray(digits[:, 0::2] << 4 | digits[:, 1::2]).view("V16")[:, 0]


_NO_UUID = "00000000-0000-0000-0000-000000000000"
_INTERVAL_SENT = np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")])
_FIXED: dict[str, tuple[np.dtype[Any], FixedColumn]] = {
    "bool": (np.dtype("u1"), _bools),
    "int2": (np.dtype(">i2"), partial(fixed_values, dtype=np.int16)),
    "int4": (np.dtype(">i4"), partial(fixed_values, dtype=np.int32)),
    "oid": (np.dtype(">u4"), partial(fixed_values, dtype=np.uint32)),
    "int8": (np.dtype(">i8"), partial(fixed_values, dtype=np.int64)),
    "float4": (np.dtype(">f4"), partial(fixed_values, dtype=np.float32)),
    "float8": (np.dtype(">f8"), partial(fixed_values, dtype=np.float64)),
    "date": (np.dtype(">i4"), _days),
    "time": (np.dtype(">i8"), partial(fixed_values, dtype=np.int64)),
    "timestamp": (np.dtype(">i8"), _instants),
    "timestamptz": (np.dtype(">i8"), _instants),
    "interval": (_INTERVAL_SENT, _intervals),
    "uuid": (np.dtype("V16"), _uuids),
}


def _bytes(array: pa.Array) -> pa.Array:
    return array.view(_BINARY)


def _jsonb(array: pa.Array) -> pa.Array:
    """jsonb_send(), version 1: the byte 1, then the text."""
    return pc.binary_join_element_wise(b"\x01", array.view(_BINARY), b"")


def _chars(array: pa.Array) -> pa.Array:
    """charsend(): always one byte, zero for empty text."""
    return pc.if_else(pc.equal(array, ""), "\0", array).view(_BINARY)


def _unsent(array: pa.Array) -> pa.Array:
    raise PgError(
        SqlState.UNDEFINED_FUNCTION,
        "no binary output function available for type record",
        hint="Cast the row to text, or return its columns.",
    )


_VARYING: dict[str, VaryingColumn] = {"jsonb": _jsonb, '"char"': _chars, "record": _unsent}

# ---- numeric: base 10000

_GROUP = 10_000
_NEGATIVE = 0x4000


def _numerics(scale: int, is_bare: bool, array: pa.Array) -> pa.Array:
    """numeric_send(): digit count, weight of the first digit, sign, scale, base-10000 digits without outer zeros.

    The scale of a bare numeric is internal: its values have the scale that they need, as in text.
    """
    count = len(array)
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    words = np.frombuffer(array.buffers()[1], np.uint64, 2 * count, array.offset * 16).reshape(count, 2)
    negative = words[:, 1] >> np.uint64(63) == 1
    low = np.where(negative, ~words[:, 0] + np.uint64(1), words[:, 0])
    carry = negative & (words[:, 0] == 0)
    high = np.where(negative, ~words[:, 1] + carry, words[:, 1])

    fraction_groups = -(-scale // 4)
    limbs = _scaled(low, high, 10 ** (4 * fraction_groups - scale))
    groups: list[NDArray[np.uint64]] = []  # least significant first
    while len(groups) < fraction_groups or limbs:
        rest = _divide_by_group(limbs, count)
        groups.append(rest)
        while limbs and not limbs[0].any():
            limbs.pop(0)
    width = len(groups)
    if not width:
        groups, width = [np.zeros(count, np.uint64)], 1

    digits = np.stack(groups[::-1], axis=1)
    filled = digits != 0
    some = filled.any(axis=1)
    first = np.where(some, filled.argmax(axis=1), 0)
    last = np.where(some, width - filled[:, ::-1].argmax(axis=1), 0)
    rows = np.empty(count, [("n", ">i2"), ("weight", ">i2"), ("sign", ">u2"), ("scale", ">i2"), ("d", ">i2", (width,))])
    rows["n"], rows["scale"], rows["d"] = last - first, scale, digits
    if is_bare:
        rows["scale"] = _needed_scale(digits, last, last - (width - fraction_groups))
    rows["weight"] = np.where(some, width - fraction_groups - 1 - first, 0)
    rows["sign"] = np.where(negative, _NEGATIVE, 0)
    places = np.arange(width)
    keep = np.ones((count, 8 + 2 * width), bool)
    keep[:, 8:] = np.repeat((places >= first[:, None]) & (places < last[:, None]), 2, axis=1)
    return string_array(starts_of(8 + 2 * (last - first)), masked_rows(rows, keep), array).view(_BINARY)


def _needed_scale(digits: NDArray[np.uint64], last: NDArray[np.intp], groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of decimal places up to the last that is not zero. `groups`: groups after the point up to `last`."""
    ends = digits[np.arange(len(digits)), np.maximum(last - 1, 0)]
    zeros = sum((ends % np.uint64(power) == 0).astype(np.intp) for power in (10, 100, 1_000))
    return np.where(groups > 0, 4 * groups - zeros, 0)


def _scaled(low: NDArray[np.uint64], high: NDArray[np.uint64], factor: int) -> list[NDArray[np.uint64]]:
    """|value| * factor (<= 1000) as base 2**32 limbs, most significant first, without leading all-zero limbs."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    limbs: list[NDArray[np.uint64]] = []
    carry = np.zeros(len(low), np.uint64)
    for limb in (low & mask, low >> shift, high & mask, high >> shift):
        product = limb * np.uint64(factor) + carry
        limbs.insert(0, product & mask)
        carry = product >> shift
    limbs.insert(0, carry)
    while limbs and not limbs[0].any():
        limbs.pop(0)
    return limbs


def _divide_by_group(limbs: list[NDArray[np.uint64]], count: int) -> NDArray[np.uint64]:
    """Divides the limbs by 10000 in place; returns the remainders."""
    rest = np.zeros(count, np.uint64)
    for index, limb in enumerate(limbs):
        limbs[index], rest = np.divmod(rest << np.uint64(32) | limb, np.uint64(_GROUP))
    return rest


# ---- arrays


def _arrays(type: PgType, element: PgType, array: pa.Array) -> pa.Array:
    """array_send(): number of dimensions, null flag, element OID, length and lower bound of each dimension, then each
    element with its length."""
    count = len(array)
    bounds = offsets_of(array)
    first, last = int(bounds[0]), int(bounds[-1])
    filled = np.diff(bounds) > 0
    lengths = [np.diff(bounds)]
    items, bounds = array.values.slice(first, last - first), bounds - first
    for _ in range(type.dimensions - 1):  # `bounds`: where each row's lists begin among `items`
        inner = offsets_of(items)
        length = np.zeros(count, np.int32)
        length[filled] = np.diff(inner)[bounds[:-1][filled]]
        lengths.append(length)
        first, last = int(inner[0]), int(inner[-1])
        items, bounds = items.values.slice(first, last - first), (inner - inner[0])[bounds]
    body, starts = sized_values(element, items)
    starts = starts[bounds]  # where each row's elements begin
    sizes = [(name, ">i4") for number in range(type.dimensions) for name in (f"length{number}", f"bound{number}")]
    head = np.empty(count, [("dims", ">i4"), ("nulls", ">i4"), ("oid", ">i4"), *sizes])
    head["dims"], head["oid"] = np.where(filled, type.dimensions, 0), element.oid
    for number, length in enumerate(lengths):
        head[f"length{number}"], head[f"bound{number}"] = length, 1
    missing = np.concatenate([[0], np.cumsum(np.asarray(items.is_null()))])[bounds]
    head["nulls"] = np.diff(missing) > 0
    keep = np.ones((count, head.itemsize), bool)
    keep[:, 12:] = filled[:, None]
    heads = string_array(starts_of(keep.sum(axis=1)), masked_rows(head, keep), array).view(_BINARY)
    bodies = string_array(starts.astype(np.int32), body, array).view(_BINARY)
    return pc.binary_join_element_wise(heads, bodies, b"")


# ---- rows

_FIELD = re.compile(r'(?:"([^"]*+(?>(?:""[^"]*+)*))"|([^",()]*+))[,)]')


def _records(types: Sequence[PgType], array: pa.Array) -> pa.Array:
    """record_send() of rows' texts: the number of fields, then each field's type OID, length and value."""
    count = len(array)
    missing = [None] * len(types)
    rows = [missing if text is None else _fields(text) for text in array.to_pylist()]
    parts = [pa.repeat(pa.scalar(len(types).to_bytes(4, "big"), _BINARY), count)]
    for index, type in enumerate(types):
        texts = TEXT if type.element is None else array_of(TEXT, type.dimensions)
        read_as = texts if type == VOID or (type.element or type).sent is not None else type
        values = [None if (text := row[index]) is None else parse_text(read_as, text) for row in rows]
        body, starts = sized_values(type, column_of(read_as, values))
        parts.append(pa.repeat(pa.scalar(type.oid.to_bytes(4, "big"), _BINARY), count))
        parts.append(pa.Array.from_buffers(_BINARY, count, [None, *map(pa.py_buffer, (starts.astype(np.int32), body))]))
    return pc.if_else(array.is_null(), None, pc.binary_join_element_wise(*parts, b""))


def _fields(text: str) -> list[str | None]:
    """The texts of the fields of a row as record_out() writes them. NULL is written as nothing."""
    return [
        plain or None if quoted is None else quoted.replace('""', '"').replace("\\\\", "\\")
        for quoted, plain in (match.groups() for match in _FIELD.finditer(text, 1))
    ]


def sized_values(type: PgType, array: pa.Array) -> tuple[Any, NDArray[np.int32]]:
    """The concatenated values, each preceded by its int32 length (NULL is length -1 only), and the n + 1 offsets."""
    if not len(array):
        return b"", np.zeros(1, np.int32)
    fixed = fixed_column(type)
    if fixed is not None:
        sized = sized_fixed(*fixed, array)
    else:
        values = varying_column(type)(array)
        lengths = np.asarray(pc.fill_null(pc.binary_length(values), -1)).astype(">i4")
        widths = np.arange(0, 4 * (len(array) + 1), 4, dtype=np.int32)
        heads = pa.Array.from_buffers(_BINARY, len(array), [None, pa.py_buffer(widths), pa.py_buffer(lengths)])
        sized = pc.binary_join_element_wise(heads, pc.fill_null(values, b""), b"")
    offsets, body = string_parts(sized)
    return body[offsets[0] : offsets[-1]], offsets - offsets[0]


def sized_fixed(dtype: np.dtype[Any], values: FixedColumn, array: pa.Array) -> pa.Array:
    """A binary array of values, each preceded by its int32 length. NULL is length -1 only; the array has no nulls."""
    rows = np.empty(len(array), [("length", ">i4"), ("value", dtype)])
    valid = np.asarray(array.is_valid())
    rows["length"], rows["value"] = np.where(valid, dtype.itemsize, -1), values(array)
    keep = np.ones((len(array), rows.dtype.itemsize), bool)
    keep[:, 4:] = valid[:, None]
    offsets = starts_of(np.where(valid, rows.dtype.itemsize, 4))
    return pa.Array.from_buffers(
        _BINARY, len(array), [None, pa.py_buffer(offsets), pa.py_buffer(masked_rows(rows, keep))]
    )
