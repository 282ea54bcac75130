"""Columns of random values, each a function of a seed, the column's number and the row's number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Ints = NDArray[np.int64]


def random_bits(seed: int, column: int, rows: Ints) -> NDArray[np.uint64]:
    """64 random bits per row: SplitMix64 of the seed, the column and the row."""
    with np.errstate(over="ignore"):
        start = _mixed(np.uint64(seed & 0xFFFFFFFFFFFFFFFF) * _STEP + np.uint64(column + 1) * _MULTIPLIERS[0])
        return np.asarray(_mixed(start + rows.astype(np.uint64) * _STEP))


def _mixed(bits: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64] | np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * _MULTIPLIERS[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MULTIPLIERS[1]
    return bits ^ (bits >> np.uint64(31))


def random_ints(seed: int, column: int, rows: Ints, least: int, greatest: int) -> Ints:
    """Whole numbers from `least` to `greatest`."""
    width = np.uint64(greatest - least + 1)
    return (random_bits(seed, column, rows) % width).astype(np.int64) + least


def words(numbers: Ints, choices: Sequence[str]) -> pa.Array:
    """The texts of `choices` at these positions."""
    return pa.array(choices, pa.string()).take(pa.array(numbers))


def random_words(seed: int, column: int, rows: Ints, choices: Sequence[str]) -> pa.Array:
    """One of `choices` per row, by `random_ints`."""
    return words(random_ints(seed, column, rows, 0, len(choices) - 1), choices)


def numbered(prefix: str, numbers: Ints, digits: int = 0) -> pa.Array:
    """The prefix and the number, such as `Supplier#000000007`."""
    texts = pa.array(numbers).cast(pa.string())
    if digits:
        texts = pc.utf8_lpad(texts, width=digits, padding="0")
    return pc.binary_join_element_wise(pa.scalar(prefix), texts, "")


def decimals(cents: Ints, scale: int = 2) -> pa.Array:
    """numeric(15, scale) from whole numbers of the last digit."""
    words_ = np.empty((len(cents), 2), np.int64)
    words_[:, 0], words_[:, 1] = cents, cents >> 63
    return pa.Array.from_buffers(pa.decimal128(15, scale), len(cents), [None, pa.py_buffer(words_)])


def dates(days: Ints) -> pa.Array:
    """Dates from days since 1970-01-01."""
    return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())


def times(microseconds: Ints) -> pa.Array:
    """timestamptz from microseconds since 1970."""
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def table(*columns: pa.Array | Ints) -> pa.Table:
    """A table with the columns c0, c1, ..."""
    arrays = [c if isinstance(c, pa.Array | pa.ChunkedArray) else pa.array(c) for c in columns]
    return pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
