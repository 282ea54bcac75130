"""Codes of the keys of rows: two rows have the same key if and only if they have the same code.

The code of a column of at most eight bytes is a 64-bit hash, which is a bijection. Other keys have codes of 128 bits:
two hashes, computed from the columns and their bytes in opposite orders. Two different keys of that kind have the same
code with a probability of 2⁻¹²⁸. A row whose key contains a NULL has no code, unless NULLs are not distinct.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values
from protocol.columnar.hashing import Hashes, key_hashes
from protocol.columnar.scalar_hashing import row_hash


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of rows. `rows`: the positions of the rows that have one; None: all. `checks`: the second hashes."""

    hashes: Hashes
    checks: Hashes | None
    rows: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.hashes)

    def to_list(self) -> list[int]:
        """The codes as integers."""
        if self.checks is None:
            return self.hashes.tolist()  # type: ignore[no-any-return]
        return [one << 64 | other for one, other in zip(self.hashes.tolist(), self.checks.tolist(), strict=True)]


@dataclass(frozen=True)
class KeyLayout:
    """The columns of a key in a table's rows, by their numbers, and their types."""

    columns: tuple[int, ...]
    types: tuple[pa.DataType, ...]
    nulls_distinct: bool = True

    @cached_property
    def is_narrow(self) -> bool:
        """Whether a code has 64 bits."""
        type = self.types[0]
        is_word = pa.types.is_primitive(type) and not pa.types.is_decimal(type)
        return len(self.types) == 1 and self.nulls_distinct and is_word

    @cached_property
    def has_scalars(self) -> bool:
        """Whether `code` works: as Python scalars all values are integers, booleans, strings or bytes."""
        return all(map(_is_scalar, self.types))

    def code(self, row: Sequence[Any]) -> int | None:
        """The code of a row of Python scalars, None if it has none. Requires `has_scalars`."""
        if self.is_narrow:
            value = row[self.columns[0]]
            return None if value is None else row_hash((value,))
        values = [row[number] for number in self.columns]
        if None in values:
            if self.nulls_distinct:
                return None
            return self.codes(_one_row(row, self)).to_list()[0]
        nulls = (0,) * len(values) if not self.nulls_distinct else ()
        reverse = [_reversed(value) for value in reversed(values)]
        return row_hash((*values, *nulls)) << 64 | row_hash((*nulls, *reverse))

    def row_counts(self, rows: Iterable[Sequence[Any]]) -> dict[int, int]:
        """The number of rows of Python scalars with each code. Requires `has_scalars`."""
        found: dict[int, int] = {}
        for row in rows:
            if (code := self.code(row)) is not None:
                found[code] = found.get(code, 0) + 1
        return found

    def codes(self, rows: pa.Table) -> Codes:
        """The codes of rows, or of changes, whose diffs are ignored."""
        columns = [rows.column(number) for number in self.columns]
        kept: NDArray[np.int64] | None = None
        if self.nulls_distinct and any(column.null_count for column in columns):
            valid = np.ones(rows.num_rows, np.bool_)
            for column in columns:
                valid &= column.is_valid().to_numpy()
            kept = np.flatnonzero(valid)
            columns = [column.take(pa.array(kept)) for column in columns]
        nulls = [] if self.nulls_distinct else [pc.is_null(column) for column in columns]
        hashes = _hashes([*columns, *nulls])
        if self.is_narrow:
            return Codes(hashes, None, kept)
        return Codes(hashes, _hashes([*nulls, *map(_reversed_column, reversed(columns))]), kept)


def _one_row(row: Sequence[Any], layout: KeyLayout) -> pa.Table:
    types = dict(zip(layout.columns, layout.types, strict=True))
    columns = [pa.array([value], types.get(number, pa.null())) if number in types else pa.nulls(1)
               for number, value in enumerate(row)]  # fmt: skip
    return pa.Table.from_arrays(columns, names=[str(number) for number in range(len(row))])


def _hashes(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    names = [str(number) for number in range(len(columns))]
    return key_hashes(pa.Table.from_arrays(list(columns), names=names), names)


def _is_scalar(type: pa.DataType) -> bool:
    is_text = pa.types.is_string(type) or pa.types.is_binary(type)
    is_time = pa.types.is_temporal(type) and not pa.types.is_interval(type)
    return bool(is_text or is_time or pa.types.is_integer(type) or pa.types.is_boolean(type))


def _reversed(value: int | str | bytes) -> int | bytes:
    if isinstance(value, int):
        return value
    return (value.encode() if isinstance(value, str) else value)[::-1]


def _reversed_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose hashes are independent of those of `column` where these are not unique."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return pc.binary_reverse(column.cast(pa.binary()))
    if pa.types.is_decimal(column.type):  # the lower half of the value, which determines almost all values
        parts = [
            pa.array(fixed_values(part, "V16").view(np.int64).reshape(len(part), 2)[:, 0].copy())
            for part in column.chunks
        ]
        return pa.chunked_array(parts, pa.int64())
    return column
