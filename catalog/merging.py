"""Sums of tables that compare only the rows that may cancel, or may be retracted twice.

Let A be the insertions and R the retractions of the tables, and likely(x) true for each retraction that equals another
row, for each insertion that equals a retraction, and for few other rows:

    A - R = { x ∈ A : ¬likely(x) } - { x ∈ R : ¬likely(x) } + ({ x ∈ A : likely(x) } - { x ∈ R : likely(x) })

The first two parts are copied in order. The last part is consolidated: by ranges of the hashes if it is large, and on
disk if it is very large. `likely` looks up a hash in a bitmap. The hash is that of the fixed-width columns, or of all
columns if those distinguish few rows. It reads only the length and the end of a string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import spill
from catalog import updates as u
from protocol.columnar.gather import rows_at
from protocol.columnar.hashing import Hashes, quick_hashes

BITS_PER_RETRACTION = 16  # entries of the bitmap; about 1/16 of the other rows are compared, too
BITS_MIN, BITS_MAX = 10, 25  # the bitmap has 2^n entries of one byte; with fewer entries, more rows are compared
COMPARED_BYTES_MAX = 64 << 20  # compared in memory, which usually needs twice as much
RANGES_MAX = 16  # of hashes, compared in memory one after the other
GATHERED_ROWS = 4_096  # smaller tables are combined: a table costs as much as a thousand rows
SAMPLED_PARTS, SAMPLED_ROWS = 16, 256  # the sample by which the hashed columns are chosen
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: combines two hashes

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of tables.

    `parts`: slices of the tables, each with the packed mask of its rows that were not compared; None: all rows.
    `compared`: the consolidated changes of the other rows. `is_rows`: all diffs are 1. `bytes`: the approximate size.
    """

    parts: list[tuple[pa.Table, NDArray[np.uint8] | None]]
    compared: pa.Table
    is_rows: bool
    bytes: int

    @property
    def schema(self) -> pa.Schema:
        """The schema of `tables`: rows if `is_rows`, else changes."""
        return u.rows_of(self.compared).schema if self.is_rows else self.compared.schema

    def tables(self) -> Iterator[pa.Table]:
        """The sum as rows or changes. No other row equals a retraction. The diffs of other equal rows are not added."""
        shaped = _as_rows if self.is_rows else u.as_changes
        for part, mask in self.parts:
            yield shaped(part if mask is None else part.filter(pa.array(_unpacked(mask, part))))
        yield shaped(self.compared)


def summed(tables: list[pa.Table], directory: Path | None) -> Sum:
    """The sum of `tables` (rows or changes, at least one). Memory is bounded as in `spill.consolidated`."""
    slices = [part for table in _gathered(tables) for part in spill.slices(table, spill.PARTITION_BYTES)]
    cancelling = _Cancelling(slices)
    parts: list[tuple[pa.Table, NDArray[np.uint8] | None]] = []
    numbers: list[NDArray[np.uint8]] = []  # the range of each row that is compared; incomplete if they are very many
    copied = compared = 0
    is_rows = True
    for part in slices:
        likely, ranges = cancelling.likely(part)
        share = np.count_nonzero(likely) / part.num_rows
        parts.append((part, np.packbits(~likely) if share else None))
        copied += int(part.nbytes * (1 - share))
        compared += int(part.nbytes * share)
        if share and compared <= RANGES_MAX * COMPARED_BYTES_MAX:
            numbers.append(ranges)
        is_rows = is_rows and (u.DIFF not in part.column_names or bool((_diffs(part)[~likely] == 1).all()))
    schema = u.as_changes(tables[0].slice(0, 0)).schema
    likely_parts = [(part, mask) for part, mask in parts if mask is not None]
    if compared > COMPARED_BYTES_MAX and _are_even(numbers, len(likely_parts)):
        changes = spill.collected(_by_range(schema, likely_parts, numbers), directory)
    else:
        others = (u.as_changes(part.filter(pa.array(~_unpacked(mask, part)))) for part, mask in likely_parts)
        changes = _consolidated(schema, others, compared, directory)
    is_rows = is_rows and bool((_diffs(changes) == 1).all())
    return Sum(parts, changes, is_rows, copied + changes.nbytes)


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables in their order, with adjacent small ones of the same schema as one."""
    few: list[pa.Table] = []
    count = 0
    for table in tables:
        if few and (count + table.num_rows > GATHERED_ROWS or table.schema != few[0].schema):
            yield _together(few)
            few, count = [], 0
        few.append(table)
        count += table.num_rows
    yield _together(few)


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def rows(tables: list[pa.Table], directory: Path | None) -> Iterator[pa.Table]:
    """The sum of `tables` as rows. NegativeCount if a multiplicity is negative."""
    found = summed(tables, directory)
    for table in found.tables():
        yield table if found.is_rows else u.expand(table)


def _consolidated(schema: pa.Schema, tables: Iterator[pa.Table], size: int, directory: Path | None) -> pa.Table:
    """The consolidated sum of changes of about `size` bytes."""
    if size <= COMPARED_BYTES_MAX:
        return u.consolidate(pa.concat_tables([schema.empty_table(), *tables]))
    found = spill.partitioned_slices(schema, tables, size, directory)
    return spill.collected((table for table in found if table is not None), directory)


def _are_even(numbers: Sequence[NDArray[np.uint8]], parts: int) -> bool:
    """Whether there are numbers for all parts, and no range has more than twice its share of the rows."""
    if len(numbers) < parts:
        return False
    counts = np.bincount(np.concatenate(numbers), minlength=RANGES_MAX)
    return bool(counts.max() * RANGES_MAX <= 2 * counts.sum())


def _by_range(
    schema: pa.Schema,
    parts: Sequence[tuple[pa.Table, NDArray[np.uint8]]],
    numbers: Sequence[NDArray[np.uint8]],
) -> Iterator[pa.Table]:
    """The consolidated sum of the rows that are not in the masks. Reads those of one range of hashes at a time."""
    for number in range(RANGES_MAX):
        found = [schema.empty_table()]
        for (part, mask), own in zip(parts, numbers, strict=True):
            positions = np.flatnonzero(~_unpacked(mask, part))[own == number]
            if len(positions):
                found.append(u.as_changes(rows_at(part, positions)))
        yield u.consolidate(pa.concat_tables(found))


class _Cancelling:
    """A bitmap of the hashes that a retracted row shares with another row."""

    def __init__(self, slices: Sequence[pa.Table]) -> None:
        changes = [part for part in slices if u.DIFF in part.column_names]
        count = sum(int(np.count_nonzero(_diffs(part) <= 0)) for part in changes)
        bits = min(max((count * BITS_PER_RETRACTION).bit_length(), BITS_MIN), BITS_MAX)
        self._columns = _hashed_columns(changes)
        self._shift = np.uint64(64 - bits)
        self._range_shift = max(0, bits - (RANGES_MAX - 1).bit_length())
        self._found = np.zeros(1 << bits if count else 0, np.bool_)
        if count:
            self._find(slices, changes)

    def _find(self, slices: Sequence[pa.Table], changes: Sequence[pa.Table]) -> None:
        retracted = np.zeros(len(self._found), np.bool_)
        for part in changes:
            diffs = _diffs(part)
            if (diffs <= 0).any():
                numbers = np.sort(self._numbers(part.filter(pa.array(diffs <= 0))))
                self._found[numbers[retracted[numbers]]] = True
                self._found[numbers[1:][numbers[1:] == numbers[:-1]]] = True
                retracted[numbers] = True
            if not diffs.all():  # rows without effect are compared, and thereby removed
                self._found[self._numbers(part.filter(pa.array(diffs == 0)))] = True
        for part in slices:
            numbers = self._numbers(part)
            if u.DIFF in part.column_names:
                numbers = numbers[_diffs(part) > 0]
            self._found[numbers[retracted[numbers]]] = True

    def likely(self, part: pa.Table) -> tuple[Mask, NDArray[np.uint8]]:
        """A mask of the rows that may cancel or may be retracted twice, and the range of the hash of each of them.

        The mask includes all that do.
        """
        if not len(self._found):
            return np.zeros(part.num_rows, np.bool_), np.empty(0, np.uint8)
        numbers = self._numbers(part)
        found: Mask = self._found[numbers]
        return found, (numbers[found] >> self._range_shift).astype(np.uint8)

    def _numbers(self, part: pa.Table) -> NDArray[np.int64]:
        """The entry of each row in the bitmap."""
        return (_SPREAD * _hashes(part, self._columns) >> self._shift).view(np.int64)


def _hashed_columns(changes: Sequence[pa.Table]) -> list[str]:
    """The fixed-width columns if they distinguish most rows of a sample of `changes`, else all columns."""
    if not changes:
        return []
    columns = [field for field in changes[0].schema if field.name != u.DIFF]
    every, fixed = ([field.name for field in columns if all or u.has_fixed_width(field.type)] for all in (True, False))
    some = pa.concat_tables([part.slice(0, SAMPLED_ROWS) for part in changes[:: max(1, len(changes) // SAMPLED_PARTS)]])
    counts = [spill.distinct(_hashes(some, names)) for names in (every, fixed)]
    return fixed if fixed and counts[1] * 2 >= counts[0] else every


def _hashes(part: pa.Table, columns: Sequence[str]) -> Hashes:
    hashes = np.zeros(part.num_rows, np.uint64)
    for name in columns:
        hashes = _SPREAD * (hashes ^ (hashes >> np.uint64(32))) + quick_hashes(part[name])
    return hashes


def _unpacked(mask: NDArray[np.uint8], part: pa.Table) -> Mask:
    return np.unpackbits(mask, count=part.num_rows).view(np.bool_)


def _diffs(changes: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = changes[u.DIFF].to_numpy()
    return found


def _as_rows(table: pa.Table) -> pa.Table:
    return u.rows_of(table) if u.DIFF in table.column_names else table
