"""A number for each row of a table, equal for rows that `updates` holds to be equal, whatever table they lie in.

Values become words of 64 bits, and a value of several words is a polynomial over them modulo 2^64, of which all values
of a column are taken at once: with the prefix sums of word x odd power, a value's sum is a difference, and the power
that it begins with is divided out, as odd numbers can be.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.updates import comparable

Hashes = NDArray[np.uint64]

KEPT_POWERS_MAX = 1 << 22
ENDS_BYTES = 512  # of a longer value only its length, its beginning and its end count
_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_ODD_INVERSE = np.uint64(pow(int(_ODD), -1, 1 << 64))


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Memory: some 40 times the bytes of the batch's texts and lists, for as long as it takes."""
    found = np.full(batch.num_rows, _ODD, np.uint64)
    for column in batch.columns:
        found = _mixed(found * _ODD + _hashes(column))
    return found


def _hashes(column: pa.Array) -> Hashes:
    if len(column) == 0 or pa.types.is_null(column.type):
        return np.full(len(column), _NULL, np.uint64)
    found = _mixed(_values(column))
    if column.null_count:
        found = np.where(np.asarray(column.is_valid()), found, _NULL)
    return found


def _values(column: pa.Array) -> Hashes:
    """Of a NULL it may be anything."""
    type = column.type
    if pa.types.is_list(type):
        offsets = column.offsets.to_numpy()
        return _polynomials(_hashes(column.values.slice(offsets[0], offsets[-1] - offsets[0])), offsets - offsets[0])
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _of_bytes(column.view(pa.binary()))
    if pa.types.is_boolean(type):
        return np.asarray(pc.fill_null(column, False).cast(pa.uint8())).astype(np.uint64)
    fixed = comparable(column)  # one bit pattern for every NaN
    width = fixed.type.bit_width // 8
    data = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * width : (fixed.offset + len(fixed)) * width]
    if width <= 8:
        return data.view(f"u{width}").astype(np.uint64)
    words = data.view(np.uint64).reshape(len(column), width // 8)
    found = words[:, 0]
    for number in range(1, words.shape[1]):
        found = _mixed(found) + words[:, number]
    return found


def _of_bytes(column: pa.BinaryArray) -> Hashes:
    lengths = np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.uint64)
    if int(lengths.max()) <= 2 * ENDS_BYTES:
        return _polynomials(*_bytes(column)) + lengths * _ODD
    ends = (pc.binary_slice(column, 0, ENDS_BYTES), pc.binary_slice(column, -ENDS_BYTES))
    first, last = (_polynomials(*_bytes(end)) for end in ends)
    return _mixed(first) + last + lengths * _ODD


def _bytes(column: pa.BinaryArray) -> tuple[Hashes, NDArray[np.int64]]:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    offsets = offsets.astype(np.int64)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data.astype(np.uint64), offsets - offsets[0]


def _polynomials(words: Hashes, offsets: NDArray[np.int64]) -> Hashes:
    """One for each value; `offsets` say which words are whose. A longer list of equal words has another."""
    count = len(words)
    powers, inverses = _powers(1 << count.bit_length())
    terms = powers[:count] * words
    terms += powers[:count]  # a zero counts, too
    sums = np.zeros(count + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    starts = offsets[:-1]
    return (sums[offsets[1:]] - sums[starts]) * inverses[starts]


def _powers(count: int) -> tuple[Hashes, Hashes]:
    """The first powers of a number, and of the one that undoes it."""
    return _kept_powers(count) if count <= KEPT_POWERS_MAX else _new_powers(count)


def _new_powers(count: int) -> tuple[Hashes, Hashes]:
    both = np.empty((2, count + 1), np.uint64)
    both[0], both[1] = _ODD, _ODD_INVERSE
    both[:, 0] = 1
    powers, inverses = np.multiply.accumulate(both, axis=1)
    return powers, inverses


_kept_powers = cache(_new_powers)


def _mixed(numbers: Hashes) -> Hashes:
    """Every bit counts for every bit (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
