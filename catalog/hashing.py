"""Numbers that stand for the values of a column: hashes that find equal keys, codes that keep an order.

Both are column operations of numpy over Arrow's buffers, one uint64 a row; where rows are kept by their key, half of
the hash is enough (`key_codes`). A hash of equal values is equal, where equal is what GROUP BY and `=` say (NULL with
NULL, NaN with NaN, 0.0 with -0.0); unequal values share one by accident only, and whoever looks rows up by it is to
compare the values again. A code is never greater than that of a value that sorts behind; values may share one.

The types of what is compared are the same, but for the widths of integers and of floats, which do not count. A
numeric's hash depends on its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values, offsets_of, string_parts

Hashes = NDArray[np.unsignedinteger[Any]]

HASHED_ROWS = 1 << 15  # at once: what is computed on the way stays in the processor's cache
LONG_BYTES = 256  # from here on a string is hashed by itself; shorter ones together, eight bytes at a time

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x2545F4914F6CDD1D)
_CODE_MAX = np.uint64(0xFFFFFFFFFFFFFFFF)
_SIGN = np.uint64(1 << 63)


def key_hashes(table: pa.Table, key: Sequence[str]) -> Hashes:
    """A hash of the columns `key` for each row; without columns all rows have the same one."""
    hashes = np.full(table.num_rows, _SEED)
    if not key:
        return hashes
    for start in range(0, table.num_rows, HASHED_ROWS):
        part = hashes[start : start + HASHED_ROWS]
        for name in key:
            part = _mixed(part ^ _rotated(_column_hashes(table[name].slice(start, HASHED_ROWS).combine_chunks())))
        hashes[start : start + HASHED_ROWS] = part
    return hashes


def key_codes(table: pa.Table, key: Sequence[str]) -> NDArray[np.uint32]:
    """The upper halves of the hashes: of ten million keys one in 400 shares its own with another."""
    return (key_hashes(table, key) >> np.uint64(32)).astype(np.uint32)


def _mixed(x: Hashes) -> Hashes:
    """splitmix64's finish: every bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _rotated(x: Hashes) -> Hashes:
    return (x << np.uint64(23)) | (x >> np.uint64(41))


def _column_hashes(column: pa.Array) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if len(column) == 0:
        return np.empty(0, np.uint64)
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    hashes = _value_hashes(column)
    if column.null_count:
        hashes = np.where(np.asarray(column.is_valid()), hashes, _NULL)
    return hashes


def _value_hashes(column: pa.Array) -> Hashes:
    """What stands for a null is arbitrary."""
    type = column.type
    if pa.types.is_dictionary(type):
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        hashes: Hashes = _column_hashes(column.dictionary)[places]
        return hashes
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _string_hashes(*string_parts(column))
    if pa.types.is_large_string(type) or pa.types.is_large_binary(type):
        offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
        values = column.buffers()[2]
        return _string_hashes(offsets, np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8))
    if pa.types.is_list(type):
        return _list_hashes(column)
    if pa.types.is_struct(type):
        hashes = np.full(len(column), _SEED)
        for child in column.flatten():
            hashes = _mixed(hashes ^ _rotated(_column_hashes(child)))
        return hashes
    if pa.types.is_boolean(type):
        return _mixed(np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.uint64))
    if pa.types.is_floating(type):
        values = fixed_values(column, "f8" if pa.types.is_float64(type) else "f4").astype(np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        return _mixed(values.view(np.uint64))
    return _mixed(_words(column))


def _words(column: pa.Array) -> Hashes:
    """The bytes of fixed-width values, folded to 64 bits."""
    width = column.type.bit_width // 8
    if width <= 8:
        return fixed_values(column, f"i{width}").astype(np.int64).view(np.uint64)
    parts = fixed_values(column, f"V{width}").view(np.uint64).reshape(len(column), width // 8)
    words = parts[:, 0].copy()
    for part in range(1, width // 8):
        words = _mixed(words) ^ parts[:, part]
    return words


def _string_hashes(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> Hashes:
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = _mixed(lengths.astype(np.uint64) ^ _SEED)
    words, first = _words_at(offsets, data)
    active = np.flatnonzero(lengths <= LONG_BYTES)
    for at in range(0, LONG_BYTES, 8):
        active = active[lengths[active] > at]
        if len(active) == 0:
            break
        word = words[starts[active] - first + at] & _masks(lengths[active] - at)
        hashes[active] = _mixed(hashes[active] ^ word)
    for row in np.flatnonzero(lengths > LONG_BYTES):
        value = data[starts[row] : starts[row] + lengths[row]]
        hashes[row] = np.frombuffer(blake2b(value.tobytes(), digest_size=8).digest(), np.uint64)[0]
    return hashes


def _words_at(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> tuple[Hashes, int]:
    """The eight bytes from each place on, little-endian, as if zeros stood behind the end; and the first place."""
    first, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - first + 8, np.uint8)
    padded[: end - first] = data[first:end]
    places = end - first + 1
    return np.lib.stride_tricks.as_strided(padded[:8].view("<u8"), (places,), (1,), writeable=False), first


def _masks(lengths: NDArray[np.int64]) -> Hashes:
    """Ones over the first `lengths` bytes, at most all eight, of a little-endian word; `lengths` are positive."""
    return _CODE_MAX >> (np.uint64(64) - np.minimum(lengths, 8).astype(np.uint64) * np.uint64(8))


def _list_hashes(column: pa.ListArray) -> Hashes:
    offsets = offsets_of(column).astype(np.int64)
    elements = _column_hashes(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64) ^ _SEED)
    active = np.arange(len(column))
    place = 0
    while len(active := active[lengths[active] > place]):
        hashes[active] = _mixed(hashes[active] ^ _rotated(elements[starts[active] + place]))
        place += 1
    return hashes


# -- order --------------------------------------------------------------------------------------------------------


def order_codes(column: pa.Array | pa.ChunkedArray, *, descending: bool = False, nulls_first: bool = False) -> Hashes:
    """Codes of a column in the order of ORDER BY: NaN behind all numbers, text by its bytes.

    Types whose order is not that of their bytes (jsonb, interval, arrays) have one code for all values.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if len(column) == 0:
        return np.empty(0, np.uint64)
    codes = _ascending(column)
    if descending:
        codes = ~codes
    if column.null_count:
        codes = np.where(np.asarray(column.is_valid()), codes, np.uint64(0) if nulls_first else _CODE_MAX)
    return codes


def _ascending(column: pa.Array) -> Hashes:
    type = column.type
    if pa.types.is_decimal(type):
        column = pc.cast(column, pa.float64(), safe=False)
        type = column.type
    if pa.types.is_floating(type):
        values = fixed_values(column, "f8" if pa.types.is_float64(type) else "f4").astype(np.float64) + 0.0
        bits = values.view(np.uint64)
        codes = np.where(bits >= _SIGN, ~bits, bits | _SIGN)
        return np.where(np.isnan(values), _CODE_MAX, codes)
    if pa.types.is_boolean(type):
        return np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.uint64)
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _prefixes(*string_parts(column))
    if pa.types.is_integer(type) or (pa.types.is_temporal(type) and type.bit_width <= 64):
        values = fixed_values(column, f"i{type.bit_width // 8}").astype(np.int64)
        return values.view(np.uint64) ^ _SIGN
    return np.zeros(len(column), np.uint64)


def _prefixes(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> Hashes:
    """The first eight bytes of each string, the first one highest; zeros stand behind its end."""
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    codes = np.zeros(len(lengths), np.uint64)
    some = np.flatnonzero(lengths)
    words, first = _words_at(offsets, data)
    codes[some] = (words[starts[some] - first] & _masks(lengths[some])).byteswap()
    return codes
