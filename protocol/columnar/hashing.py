"""Hashes and order-preserving codes of column values, computed with numpy over Arrow's buffers: one uint64 per row.

- Hashes find equal keys. Equal values have equal hashes, where equality is that of GROUP BY (NULL = NULL, NaN = NaN,
  0.0 = -0.0). Unequal values may collide, so a lookup by hash must compare the values. `key_codes` keeps half of the
  hash, which suffices for arrangements by key.
- Codes preserve order: `a < b` implies `code(a) <= code(b)`. Different values may have the same code.

Hashes are comparable between columns of the same type; different widths of integers, or of floats, are comparable, too.
The hash of a numeric depends on its scale.
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

HASHED_ROWS = 1 << 15  # rows hashed at a time, so that intermediate results stay in the CPU cache
LONG_BYTES = 256  # longer strings are hashed one by one; others together, eight bytes at a time

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x2545F4914F6CDD1D)
_CODE_MAX = np.uint64(0xFFFFFFFFFFFFFFFF)
_SIGN = np.uint64(1 << 63)


def key_hashes(table: pa.Table, key: Sequence[str]) -> Hashes:
    """A hash of the columns `key` for each row. If `key` is empty, all rows have the same hash."""
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
    """The upper halves of the hashes. Among ten million keys, about one in 400 collides with another."""
    return (key_hashes(table, key) >> np.uint64(32)).astype(np.uint32)


def distinct_hashes(hashes: Hashes) -> Hashes:
    """The distinct hashes, ascending. np.unique returns the same, but takes ten times as long."""
    ordered = np.sort(hashes)
    is_new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def are_among(hashes: Hashes, sought: Hashes) -> NDArray[np.bool_]:
    """A mask of the hashes in `sought` (ascending, distinct). np.isin returns the same in ten times the time."""
    if len(sought) == 0:
        return np.zeros(len(hashes), np.bool_)
    order = np.argsort(hashes)  # a search in order reads memory in order
    ordered = hashes[order]
    found = np.empty(len(hashes), np.bool_)
    found[order] = sought[np.searchsorted(sought[:-1], ordered)] == ordered
    return found


def quick_hashes(column: pa.ChunkedArray) -> Hashes:
    """A hash of each value. Of a string only its length and its last eight bytes count, which is cheaper."""
    found = []
    for start in range(0, len(column), HASHED_ROWS):
        part = column.slice(start, HASHED_ROWS).combine_chunks()
        if pa.types.is_string(part.type) or pa.types.is_binary(part.type):
            hashes = _string_end_hashes(*string_parts(part))
            found.append(np.where(np.asarray(part.is_valid()), hashes, _NULL) if part.null_count else hashes)
        else:
            found.append(_column_hashes(part))
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _mixed(x: Hashes) -> Hashes:
    """The finalizer of splitmix64: every bit of the result depends on every bit of `x`."""
    mixed = x >> np.uint64(30)
    mixed ^= x
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


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
    """Hashes of the values; arbitrary at nulls."""
    type = column.type
    if pa.types.is_dictionary(type):
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        hashes: Hashes = _column_hashes(column.dictionary)[indices]
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
    """Fixed-width values as one 64-bit word each; wider values are folded."""
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
    rows = np.flatnonzero((lengths > 0) & (lengths <= LONG_BYTES))  # the rows with bytes that are not hashed yet
    at, left, found = starts[rows] - first, lengths[rows], hashes[rows]
    while len(rows):
        word = words[at]
        if left.min() < 8:
            word &= _masks(left)
        found = _mixed(found ^ word)
        is_complete = left <= 8
        if is_complete.any():
            hashes[rows[is_complete]] = found[is_complete]
            going = np.flatnonzero(~is_complete)
            rows, at, left, found = rows[going], at[going], left[going], found[going]
        at, left = at + 8, left - 8
    for row in np.flatnonzero(lengths > LONG_BYTES):
        value = data[starts[row] : starts[row] + lengths[row]]
        hashes[row] = np.frombuffer(blake2b(value.tobytes(), digest_size=8).digest(), np.uint64)[0]
    return hashes


def _string_end_hashes(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> Hashes:
    ends, lengths = offsets[1:].astype(np.int64), np.diff(offsets).astype(np.int64)
    words, first = _words_at(offsets, data)
    last = np.minimum(lengths, 8)
    word = np.where(last > 0, words[ends - last - first] & _masks(np.maximum(last, 1)), np.uint64(0))
    return _mixed(_mixed(lengths.astype(np.uint64) ^ _SEED) ^ word)


def _words_at(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> tuple[Hashes, int]:
    """The little-endian 8-byte word at each byte position, padded with zeros after the end; and the first position."""
    first, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - first + 8, np.uint8)
    padded[: end - first] = data[first:end]
    length = end - first + 1
    return np.lib.stride_tricks.as_strided(padded[:8].view("<u8"), (length,), (1,), writeable=False), first


def _masks(lengths: NDArray[np.int64]) -> Hashes:
    """Masks that select the first min(length, 8) bytes of a little-endian word; `lengths` are positive."""
    return _CODE_MAX >> (np.uint64(64) - np.minimum(lengths, 8).astype(np.uint64) * np.uint64(8))


def _list_hashes(column: pa.ListArray) -> Hashes:
    offsets = offsets_of(column).astype(np.int64)
    elements = _column_hashes(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64) ^ _SEED)
    active = np.arange(len(column))
    position = 0
    while len(active := active[lengths[active] > position]):
        hashes[active] = _mixed(hashes[active] ^ _rotated(elements[starts[active] + position]))
        position += 1
    return hashes


# -- order --------------------------------------------------------------------------------------------------------


def order_codes(column: pa.Array | pa.ChunkedArray, *, descending: bool = False, nulls_first: bool = False) -> Hashes:
    """Codes of a column in the order of ORDER BY: NaN after all numbers, text by its bytes.

    Types without an order here (intervals, arrays) have one code for all values. jsonb is text in Arrow: its codes are
    in byte order, which is not the order of jsonb.
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
    """The first eight bytes of each string as a big-endian word, padded with zeros."""
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    codes = np.zeros(len(lengths), np.uint64)
    some = np.flatnonzero(lengths)
    words, first = _words_at(offsets, data)
    codes[some] = (words[starts[some] - first] & _masks(lengths[some])).byteswap()
    return codes
