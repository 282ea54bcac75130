"""(row, diff) at one time as Arrow tables: the algebra that the log, the dataflows and the envelopes share.

Two shapes of `pa.Table`, told apart by their last column; a collection's own columns come first, named by
position (c0, c1, ...), because users' names may repeat or be odd:

- rows:     c0..cn         one line a copy of a row; what Spark reads and COPY sends
- changes:  c0..cn, diff   the updates of one time

Consolidated means: one line per row, no zero diff. Two rows are the same when their bytes are: 0.0 and
-0.0 are two rows, NULL equals NULL; but every NaN is the same NaN, whatever arithmetic left in its bits.
All of it is column operations; nothing looks at one row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

CHUNKS_MAX = 64  # of rows that changes were applied to: more make each look at them slower
SOUGHT_SHARE = 16  # of rows one is sought as quickly as all are added up
DIFF = "diff"
DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)


class NegativeCount(Exception):
    """A row's count is below zero: more copies of it were taken away than ever stood there."""


def rows_schema(types: Sequence[pa.DataType]) -> pa.Schema:
    """The schema of `rows` for columns of these types."""
    return pa.schema([pa.field(f"c{i}", t) for i, t in enumerate(types)])


def rows_of(changes: pa.Table) -> pa.Table:
    """The row's own columns, as they stand: counts are neither looked at nor applied."""
    return changes.drop_columns([DIFF])


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    """Changes that add (or, below zero, take away) each line of `rows` `diff` times."""
    return rows.append_column(DIFF_FIELD, pa.array(np.full(rows.num_rows, diff, np.int64)))


def as_changes(table: pa.Table) -> pa.Table:
    """Rows as the changes that add them; changes as they are."""
    return table if DIFF in table.column_names else with_diff(table, 1)


def takes_away(table: pa.Table) -> bool:
    """Whether rows or changes take a row away."""
    return DIFF in table.column_names and table.num_rows > 0 and bool(pc.min(table[DIFF]).as_py() < 0)


def consolidate(table: pa.Table) -> pa.Table:
    """Adds up the diffs of equal rows of changes and drops zeros. First appearance gives the order."""
    if table.num_rows <= 1:
        return table.filter(pc.not_equal(table[DIFF], 0)) if table.num_rows else table
    keys = [name for name in table.column_names if name != DIFF]
    grouped = pa.table(
        [
            *(comparable(table[name].combine_chunks()) for name in keys),
            pa.array(np.arange(table.num_rows)),
            table[DIFF],
        ],
        names=[*keys, "first", DIFF],
    ).group_by(keys, use_threads=False)
    sums = grouped.aggregate([("first", "min"), (DIFF, "sum")])
    first, diffs = sums["first_min"].to_numpy(), sums[f"{DIFF}_sum"].to_numpy()
    order = np.argsort(first, kind="stable")  # groups come nearly in this order, which makes the sort cheap
    order = order[diffs[order] != 0]
    return table.select(keys).take(pa.array(first[order])).append_column(DIFF_FIELD, pa.array(diffs[order]))


def expand(changes: pa.Table) -> pa.Table:
    """Rows: each line of consolidated changes as often as its diff says. NegativeCount if one is below zero."""
    diffs = changes[DIFF].to_numpy()
    rows = rows_of(changes)
    if len(diffs) == 0 or (diffs == 1).all():
        return rows
    if (diffs < 0).any():
        raise NegativeCount(f"count {int(diffs.min())} for a row")
    return rows.take(pa.array(np.repeat(np.arange(len(diffs)), diffs)))


def negate(changes: pa.Table) -> pa.Table:
    """The changes that undo `changes`."""
    return rows_of(changes).append_column(DIFF_FIELD, pc.negate(changes[DIFF]))


def difference(new: pa.Table, old: pa.Table) -> pa.Table:
    """Consolidated changes that lead from the rows `old` to the rows `new`."""
    if new is old:
        return with_diff(new.slice(0, 0), 1)
    return consolidate(pa.concat_tables([with_diff(old, -1), with_diff(new, 1)]))


def apply(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """`rows` after `changes`, those that are left as they are first. The same table when nothing changes.

    Only rows that look like one that goes are added up; when changes only add, there is no look at `rows`.
    """
    if changes.num_rows == 0:
        return rows
    if not takes_away(changes):
        return pa.concat_tables([rows, expand(changes)])
    likely = like(rows, changes.filter(pc.less(changes[DIFF], 0)))
    touched = with_diff(rows.filter(pa.array(likely)), 1)
    found = pa.concat_tables(
        [rows.filter(pa.array(~likely)), expand(consolidate(pa.concat_tables([touched, changes])))]
    )
    return found.combine_chunks() if found.num_columns and found.column(0).num_chunks > CHUNKS_MAX else found


def like(rows: pa.Table, others: pa.Table) -> NDArray[np.bool_]:
    """Of each of `rows` whether each of its values is one of `others`: all that equal one of those, and few besides.

    Columns are looked at, those with short values first, until about as many are left as there are others. All, if
    there are so many others that to add up all is as quick.
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
    return bool(pa.types.is_primitive(type) or pa.types.is_decimal(type) or _is_long(type))


def _is_long(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


def comparable(column: pa.Array) -> pa.Array:
    """An array with equal values exactly where `column` has equal values, of a type that Arrow can group by."""
    type = column.type
    if pa.types.is_floating(type):
        one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type), column)
        return one_nan.view(pa.int64() if pa.types.is_float64(type) else pa.int32())
    if pa.types.is_list(type):
        return _list_codes(column)
    return column


def _list_codes(column: pa.ListArray) -> pa.Array:
    """Each list as the bytes of its elements' codes: equal lists have equal bytes, NULL elements among them."""
    offsets = column.offsets.to_numpy()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    codes = comparable(values).dictionary_encode(null_encoding="encode").indices
    data = np.ascontiguousarray(codes.to_numpy().astype(np.int32))
    starts = ((offsets - offsets[0]) * 4).astype(np.int64)
    bytes_ = pa.Array.from_buffers(pa.large_binary(), len(column), [None, pa.py_buffer(starts), pa.py_buffer(data)])
    if column.null_count == 0:
        return bytes_
    return pc.if_else(column.is_valid(), bytes_, pa.scalar(None, pa.large_binary()))
