"""The positions of a table's rows by one column, for lookups in a table that does not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.hashing import key_codes


class SortedKeys:
    """A column's values, or their hashes, sorted, with the positions of the rows. At most 16 bytes for each row."""

    __slots__ = ("_codes", "_positions", "is_exact")

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.is_exact = pa.types.is_integer(column.type) and column.null_count == 0
        """Whether `positions` returns the rows with the values only."""
        codes = self._codes_of(column)
        positions = np.argsort(codes)
        self._codes = codes[positions]
        self._positions = positions

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._positions.nbytes

    def positions(self, values: pa.Array) -> NDArray[np.integer[Any]]:
        """The positions of all rows that have one of `values`, and of few others, ascending."""
        codes = self._codes_of(values)
        begins = self._codes.searchsorted(codes, "left").tolist()
        ends = self._codes.searchsorted(codes, "right").tolist()
        parts = [self._positions[begin:end] for begin, end in set(zip(begins, ends, strict=True)) if begin < end]
        return np.sort(np.concatenate(parts)) if parts else self._positions[:0]

    def _codes_of(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.integer[Any]]:
        if self.is_exact:
            return column.to_numpy()  # type: ignore[no-any-return]
        return key_codes(pa.table([column], names=["c0"]), ["c0"])
