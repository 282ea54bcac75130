"""Groups of rows that are equal to no row of another group, found by the ranges of one column's values.

Rows are often stored in the order of a serial number or a time. The least and greatest values of such a column in each
slice of a table then tell which slices can have equal rows, so that consolidation needs no partitions on disk.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from protocol.columnar.buffers import fixed_values

WORK_MAX = 4  # a slice may be in several groups: the groups' slices have at most this many times the bytes of all rows

Values = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Pieces of tables, and half-open ranges of a column. A group consists of the rows in one range.

    `groups`: for each range the numbers of the slices that can have rows in it. `least`, `greatest`: per slice.
    """

    column: str
    slices: Sequence[pa.Table]
    least: NDArray[np.int64]
    greatest: NDArray[np.int64]
    groups: Sequence[tuple[int | None, int | None, NDArray[np.intp]]]

    def consolidated(self) -> Iterator[pa.Table]:
        """The consolidated changes of each group."""
        for lower, upper, numbers in self.groups:
            parts = [updates.as_changes(self._part(number, lower, upper)) for number in numbers.tolist()]
            changes = pa.concat_tables(parts)
            yield changes if self._is_consolidated(changes) else updates.consolidate(changes)

    def _part(self, number: int, lower: int | None, upper: int | None) -> pa.Table:
        """The rows of a slice with `lower <= value < upper`."""
        part = self.slices[number]
        if (lower is None or self.least[number] >= lower) and (upper is None or self.greatest[number] < upper):
            return part
        values = _values(part[self.column])
        wanted = np.ones(len(values), np.bool_)
        if lower is not None:
            wanted &= values >= lower
        if upper is not None:
            wanted &= values < upper
        return part.filter(pa.array(wanted))

    def _is_consolidated(self, changes: pa.Table) -> bool:
        """Whether the column's values are strictly increasing, so that all rows are different, and no diff is 0."""
        values = _values(changes[self.column])
        return bool((values[1:] > values[:-1]).all() and changes[updates.DIFF].to_numpy().all())


def ranges(slices: Sequence[pa.Table], group_bytes: int, bytes_max: int) -> Generator[None, None, Ranges | None]:
    """Returns the ranges of the first column that divides the rows into groups of at most `bytes_max` bytes.

    `group_bytes`: the approximate size of a group, as long as rows are stored in the column's order. None if no column
    does, or the groups' slices overlap too much. Yields after each column, so that the caller can stop.
    """
    sizes = np.array([part.nbytes for part in slices])
    for field in slices[0].schema if slices else ():
        if field.name == updates.DIFF or not _is_ordered(field.type):
            continue
        bounds = [_bounds(part[field.name]) for part in slices]
        if all(bound is not None for bound in bounds):
            least, greatest = np.array(bounds, np.int64).T
            groups = _groups(least, greatest, sizes, group_bytes, bytes_max)
            if groups is not None:
                return Ranges(field.name, slices, least, greatest, groups)
        yield None
    return None


def _groups(
    least: NDArray[np.int64], greatest: NDArray[np.int64], sizes: NDArray[np.int64], group_bytes: int, bytes_max: int
) -> list[tuple[int | None, int | None, NDArray[np.intp]]] | None:
    """The groups of `Ranges`, None if a group can have more than `bytes_max` bytes, or all of them too many."""
    order = np.argsort(least, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    firsts = np.searchsorted(before, np.arange(group_bytes, sizes.sum(), group_bytes))
    cuts = np.unique(least[order][firsts[firsts < len(order)]]).tolist()
    groups = []
    work = 0
    for lower, upper in zip([None, *cuts], [*cuts, None], strict=True):
        within = np.ones(len(least), np.bool_)
        if lower is not None:
            within &= greatest >= lower
        if upper is not None:
            within &= least < upper
        numbers = np.flatnonzero(within)
        size = int(sizes[numbers].sum())
        work += size
        if size > bytes_max or work > WORK_MAX * int(sizes.sum()):
            return None
        if len(numbers):
            groups.append((lower, upper, numbers))
    return groups


def _is_ordered(type: pa.DataType) -> bool:
    """Whether values of the type are integers, which are equal exactly if their rows' bytes are."""
    return bool(
        pa.types.is_integer(type) or pa.types.is_date(type) or pa.types.is_timestamp(type) or pa.types.is_time(type)
    )


def _bounds(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The least and the greatest value; None if there is a NULL."""
    if column.null_count:
        return None
    values = _values(column)
    return int(values.min()), int(values.max())


def _values(column: pa.ChunkedArray) -> Values:
    """The values as signed integers. Unsigned ones may change their order, but remain different."""
    dtype = f"i{column.type.bit_width // 8}"
    parts = [fixed_values(chunk, dtype) for chunk in column.chunks if len(chunk)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
