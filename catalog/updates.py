"""Updates (row, diff) at one time as Arrow tables, and the operations that the log, dataflows and envelopes share.

There are two shapes of `pa.Table`, distinguished by their last column. The collection's columns are named by position
(c0, c1, ...), because users' column names may be duplicates or contain any characters:

- rows:     c0..cn         one table row per copy of a row; read by Spark, sent by COPY
- changes:  c0..cn, diff   the updates at one time

Consolidated changes have each row once and no zero diff. Rows are equal if their bytes are: 0.0 and -0.0 are different
rows, NULL equals NULL. All NaN are equal. All operations work on columns; only FEW_ROWS are
consolidated row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.equality import comparable, equal_rows
from protocol.columnar.gather import rows_at
from protocol.columnar.hashing import key_hashes

FEW_ROWS = 32  # so many rows are consolidated without Arrow's grouping
CHUNKS_MAX = 64  # of a table after `apply`; more chunks make every later operation slower
HASHED_ROWS_MIN = 1_024  # in larger tables, only rows whose hash is not unique are compared
COMBINED_BYTES = 1 << 27  # of a table whose chunks are copied to one; bounds the memory
COMPARED_ROWS = 1 << 16  # pairs that are compared at a time; bounds the memory
SOUGHT_SHARE = 16  # searching 1/16 of the rows takes as long as consolidating all
DISTINCT_COLUMNS = 2  # leading columns that are tested for distinct values
SAMPLES_ROWS = (64, 512)  # leading rows that are tested before the whole column
NUMBER_MAX = 1 << 62  # a row number before the numbers are made dense
SMALL_BYTES = 4_096
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: combines two hashes
DIFF = "diff"
DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)
_SINGLE = {diff: pa.array([diff], pa.int64()) for diff in (1, -1)}


class NegativeCount(Exception):
    """The multiplicity of a row is negative. `relation`: the name of the relation with this row, if it is known."""

    def __init__(self, reason: str, relation: str | None = None) -> None:
        super().__init__(reason)
        self.relation = relation


def rows_schema(types: Sequence[pa.DataType]) -> pa.Schema:
    """The schema of `rows` for columns of these types."""
    return pa.schema([pa.field(f"c{i}", t) for i, t in enumerate(types)])


def rows_of(changes: pa.Table) -> pa.Table:
    """The columns without `diff`. Diffs are ignored, not applied."""
    return changes.drop_columns([DIFF])


def size_of(table: pa.Table) -> int:
    """The size of a table. For a small one, that of its buffers: `nbytes` takes 10 microseconds."""
    size: int = table.get_total_buffer_size()
    return size if size <= SMALL_BYTES else table.nbytes


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    """Changes with the same `diff` for each of `rows`."""
    diffs = _SINGLE.get(diff) if rows.num_rows == 1 else None
    if diffs is None:
        diffs = pa.array(np.full(rows.num_rows, diff, np.int64))
    return rows.append_column(DIFF_FIELD, diffs)


def as_changes(table: pa.Table) -> pa.Table:
    """Rows as changes with diff +1; changes unchanged."""
    return table if DIFF in table.column_names else with_diff(table, 1)


def has_retractions(table: pa.Table) -> bool:
    """Whether the table has a negative diff."""
    return DIFF in table.column_names and table.num_rows > 0 and bool(pc.min(table[DIFF]).as_py() < 0)


def consolidate(table: pa.Table) -> pa.Table:
    """Sums the diffs of equal rows and drops zeros. Rows are in the order of their first appearance."""
    if table.num_rows == 0:
        return table
    if table.num_rows <= FEW_ROWS:
        return _consolidate_few(table)
    keys = [name for name in table.column_names if name != DIFF]
    # The rows before and after updates often share their identifiers.
    if not has_retractions(table) and _are_distinct(table, keys):
        is_change = pc.not_equal(table[DIFF], 0)
        return table if pc.all(is_change).as_py() else table.filter(is_change)
    if table.nbytes <= COMBINED_BYTES:  # rows are hashed and gathered faster from one chunk
        table = table.combine_chunks()
    sums = sums_of_equal(table.select(keys), table[DIFF].to_numpy())
    if sums.all():
        return table
    kept = sums != 0
    rows = table.select(keys)
    return (rows if kept.all() else rows.filter(pa.array(kept))).append_column(DIFF_FIELD, pa.array(sums[kept]))


def sums_of_equal(
    rows: pa.Table, diffs: NDArray[np.int64], among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Returns for the first of equal rows the sum of their diffs, and 0 for the others.

    `among`: the positions of the rows to compare, ascending; other rows keep their diffs. None: all rows.
    """
    left = np.arange(rows.num_rows) if among is None else among
    sums = diffs.copy()
    if len(left) >= HASHED_ROWS_MIN:
        hashes = np.zeros(len(left), np.uint64)
        # Columns of a fixed width are hashed first, because that is cheap and often shows that all rows are distinct.
        fixed = [field.name for field in rows.schema if has_fixed_width(field.type)]
        for names in (fixed, [name for name in rows.column_names if name not in fixed]):
            if names and len(left):
                hashes = _SPREAD * hashes + key_hashes(_at(rows.select(names), left), names)
                pairs, others = _same_hash(hashes)
                _add_pairs(rows, left[pairs], diffs, sums)
                left, hashes = left[others], hashes[others]
    if len(left):
        firsts, totals = _grouped(_at(rows, left), diffs[left])
        sums[left] = 0
        sums[left[firsts]] = totals
    return sums


def _same_hash(hashes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the positions of rows that share a hash: pairs (n x 2) for a hash of two rows, and those of more rows.

    The positions of a pair, and those of the second result, are ascending.
    """
    order = np.argsort(hashes)  # a stable sort takes three times as long
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, len(order)))
    firsts = starts[counts == 2]
    one, other = order[firsts], order[firsts + 1]
    pairs = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
    return pairs, np.sort(order[np.repeat(counts > 2, counts)])


def _add_pairs(rows: pa.Table, pairs: NDArray[np.int64], diffs: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    """For each pair of equal rows, sets `sums` to the sum of their diffs at the first row, and to 0 at the second."""
    blocks = [slice(start, start + COMPARED_ROWS) for start in range(0, len(pairs), COMPARED_ROWS)]
    equal = np.ones(len(pairs), np.bool_)
    for name in rows.column_names:
        column = rows.select([name])
        if len(blocks) > 1:  # otherwise each block would read all chunks
            column = column.combine_chunks()
        for block in blocks:
            first, second = pairs[block].T
            equal[block] &= equal_rows(rows_at(column, first), rows_at(column, second))
    first, second = pairs[equal].T
    sums[first] = diffs[first] + diffs[second]
    sums[second] = 0


def _at(rows: pa.Table, positions: NDArray[np.int64]) -> pa.Table:
    """The rows at these distinct positions."""
    return rows if len(positions) == rows.num_rows else rows_at(rows, positions)


def _grouped(rows: pa.Table, diffs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The position of the first row of each group of equal rows, and the sum of the group's diffs."""
    keys = rows.column_names
    if len(diffs) <= FEW_ROWS and keys:
        totals = _grouped_few(rows, diffs.tolist())
        return np.fromiter(totals.keys(), np.int64, len(totals)), np.fromiter(totals.values(), np.int64, len(totals))
    grouped = pa.table(
        [
            *(comparable(column.combine_chunks()) for column in rows.columns),
            pa.array(np.arange(len(diffs))),
            pa.array(diffs),
        ],
        names=[*keys, "first", DIFF],
    ).group_by(keys, use_threads=False)
    sums = grouped.aggregate([("first", "min"), (DIFF, "sum")])
    return sums["first_min"].to_numpy(), sums[f"{DIFF}_sum"].to_numpy()


def row_numbers(rows: pa.Table) -> NDArray[np.int64]:
    """A number for each row, the same for equal rows and another for different ones."""
    numbers, count = np.zeros(rows.num_rows, np.int64), 1
    for column in rows.columns:
        encoded = comparable(column.combine_chunks()).dictionary_encode(null_encoding="encode")
        values = max(len(encoded.dictionary), 1)
        if count * values > NUMBER_MAX:  # the numbers could overflow, so they are replaced by 0, 1, ...
            distinct, numbers = np.unique(numbers, return_inverse=True)
            count = len(distinct)
        numbers = numbers * values + encoded.indices.to_numpy()
        count *= values
    return numbers


def _are_distinct(table: pa.Table, keys: Sequence[str]) -> bool:
    """Whether one of the first columns, where identifiers usually are, shows that no two rows are equal.

    May be False although none are: this is a fast test before a slow one.
    """
    for name in keys[:DISTINCT_COLUMNS]:
        column = table[name]
        if _is_sought(column.type) and not pa.types.is_floating(column.type):
            parts = [column.slice(0, count) for count in SAMPLES_ROWS if count < len(column)]
            if all(len(part.unique()) == len(part) for part in (*parts, column)):
                return True
    return False


def _consolidate_few(table: pa.Table) -> pa.Table:
    """As `consolidate`. Arrow's grouping takes 200 microseconds, however few rows there are, and `take` 30."""
    diffs = table[DIFF].to_pylist()
    sums = {number: total for number, total in _grouped_few(rows_of(table), diffs).items() if total}
    if len(sums) < len(diffs):
        slices = [table.slice(number, 1) for number in sums]
        found = pa.concat_tables(slices) if slices else table.slice(0, 0)
    else:
        found = table
    if all(diffs[number] == total for number, total in sums.items()):
        return found.combine_chunks()
    return rows_of(found).append_column(DIFF_FIELD, pa.array(list(sums.values()), pa.int64())).combine_chunks()


def _grouped_few(rows: pa.Table, diffs: Sequence[int]) -> dict[int, int]:
    """The sum of the diffs of each group of equal rows, by the position of the group's first row."""
    values = zip(*map(_hashable_values, rows.columns), strict=True) if rows.num_columns else [()] * len(diffs)
    first: dict[tuple[Any, ...], int] = {}
    sums: dict[int, int] = {}
    for number, (row, diff) in enumerate(zip(values, diffs, strict=True)):
        position = first.setdefault(row, number)
        sums[position] = sums.get(position, 0) + diff
    return sums


def _hashable_values(column: pa.ChunkedArray) -> list[Any]:
    """A hashable Python value for each value of the column, equal exactly where the column's values are."""
    type = column.type
    if pa.types.is_floating(type):
        bits = pa.int64() if pa.types.is_float64(type) else pa.int32()
        return [
            "NaN" if value != value else code
            for part in column.chunks
            for value, code in zip(part.to_pylist(), part.view(bits).to_pylist(), strict=True)
        ]
    if pa.types.is_list(type):
        return comparable(column.combine_chunks()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_temporal(type) and not pa.types.is_interval(type):  # Python's have a smaller range
        bits = pa.int32() if type.bit_width == 32 else pa.int64()
        return [code for part in column.chunks for code in part.view(bits).to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


def expand(changes: pa.Table) -> pa.Table:
    """Consolidated changes as rows, each repeated `diff` times. NegativeCount if a diff is negative."""
    diffs = changes[DIFF].to_numpy()
    rows = rows_of(changes)
    if len(diffs) == 0 or (diffs == 1).all():
        return rows
    if (diffs < 0).any():
        raise NegativeCount(f"count {int(diffs.min())} for a row")
    return rows_at(rows, np.repeat(np.arange(len(diffs)), diffs))


def negate(changes: pa.Table) -> pa.Table:
    """The changes with negated diffs, which undo `changes`."""
    return rows_of(changes).append_column(DIFF_FIELD, pc.negate(changes[DIFF]))


def difference(new: pa.Table, old: pa.Table) -> pa.Table:
    """`new - old`: the consolidated changes that turn the rows `old` into the rows `new`."""
    if new is old:
        return with_diff(new.slice(0, 0), 1)
    return consolidate(pa.concat_tables([with_diff(old, -1), with_diff(new, 1)]))


def apply(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """`rows + changes`, remaining rows first. Returns the same table if `changes` is empty.

    Consolidates only rows that may equal a retracted one. If there are no retractions, `rows` are not examined.
    """
    if changes.num_rows == 0:
        return rows
    if not has_retractions(changes):
        return pa.concat_tables([rows, expand(changes)])
    if rows.num_rows + changes.num_rows <= FEW_ROWS:
        return expand(consolidate(pa.concat_tables([with_diff(rows, 1), changes])))
    likely = like(rows, changes.filter(pc.less(changes[DIFF], 0)))
    touched = with_diff(rows.filter(pa.array(likely)), 1)
    found = pa.concat_tables(
        [rows.filter(pa.array(~likely)), expand(consolidate(pa.concat_tables([touched, changes])))]
    )
    return found.combine_chunks() if found.num_columns and found.column(0).num_chunks > CHUNKS_MAX else found


def like(rows: pa.Table, others: pa.Table) -> NDArray[np.bool_]:
    """A mask of the `rows` that may equal one of `others`: it includes all that do, and few more.

    Filters by one column after the other, those with short values first, until about as many rows are left as there
    are `others`. Selects all rows if `others` are so many that consolidating all rows is as fast.
    """
    if rows.num_rows < SOUGHT_SHARE * others.num_rows:
        return np.ones(rows.num_rows, np.bool_)
    left = np.arange(rows.num_rows)
    schema = [field for field in rows.schema if _is_sought(field.type)]
    for field in sorted(schema, key=lambda field: _is_long(field.type)):
        if len(left) <= 2 * others.num_rows:
            break
        column = rows[field.name] if len(left) == rows.num_rows else rows[field.name].take(pa.array(left))
        sought = comparable(others[field.name].combine_chunks()).unique()
        parts = [pc.is_in(comparable(part), value_set=sought) for part in column.chunks]
        left = left[np.concatenate([np.asarray(part) for part in parts])] if parts else left
    found = np.zeros(rows.num_rows, np.bool_)
    found[left] = True
    return found


def _is_sought(type: pa.DataType) -> bool:
    return has_fixed_width(type) or _is_long(type)


def has_fixed_width(type: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type) or pa.types.is_decimal(type))


def _is_long(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))
