"""The net effect of changes: rows to delete, update and insert, or pairs of old and new rows of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.updates import DIFF
from protocol.cdcv2.messages import TIME

UPDATED = "updated"
COUNT = "count"
NONE = -1  # the row number of a row that does not exist

Integers = NDArray[np.int64]


class KeyViolation(Exception):
    """Several rows have the same key, or a key is NULL (`is_null`). `row`: the columns of that key, in one row."""

    def __init__(self, row: pa.Table, *, is_null: bool = False) -> None:
        super().__init__()
        self.row = row
        self.is_null = is_null


@dataclass(frozen=True, slots=True)
class NetChanges:
    """Consolidated changes of a table.

    `staged`: the rows to find in the table, c0, c1, .... With a key, each also has the new values of the other columns
    (n0, n1, ..., numbered as the columns) and `UPDATED`: whether the row is updated to them or deleted. Without a key,
    each has `COUNT`: how many copies are deleted. `deleted`, `updated`: the numbers of rows. `inserted`: rows.
    """

    staged: pa.Table
    deleted: int
    updated: int
    inserted: pa.Table


def net_changes(changes: pa.Table, key: Sequence[int] | None) -> NetChanges:
    """The net effect of changes at any times. `key`: the columns of the key; None: rows may be duplicates.

    KeyViolation if the changes show that two rows have the same key, or that a key is NULL.
    """
    changes = updates.consolidate(changes.drop_columns([TIME]) if TIME in changes.column_names else changes)
    return _of_multiset(changes) if key is None else _of_keys(changes, key)


def check_key(rows: pa.Table, key: Sequence[int]) -> None:
    """KeyViolation if a column of the key is NULL."""
    columns = rows.select(list(key))
    for column in columns.columns:
        if column.null_count:
            raise KeyViolation(columns.filter(column.is_null()).slice(0, 1), is_null=True)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The old and the new row of each change, ordered by time.

    `before`, `after`: row numbers. `before` is `NONE` for an insertion, and `after` for a deletion. `group`: identifies
    the key and the time of a pair. Pairs of the same group are adjacent.
    """

    before: Integers
    after: Integers
    group: Integers

    def slice(self, start: int, count: int) -> Pairs:
        """The `count` pairs from `start` on."""
        part = slice(start, start + count)
        return Pairs(self.before[part], self.after[part], self.group[part])

    def latest(self) -> Pairs:
        """One pair per group: the last one with a new row, or the first one if no pair has a new row."""
        if not len(self.group):
            return self
        starts = np.flatnonzero(np.diff(self.group, prepend=-1))
        last = np.maximum.reduceat(np.where(self.after != NONE, np.arange(len(self.group)), NONE), starts)
        kept = np.where(last == NONE, starts, last)
        return Pairs(self.before[kept], self.after[kept], self.group[kept])


def paired(changes: pa.Table, key: Sequence[int] | None, *, is_unique: bool) -> Pairs:
    """Pairs old and new rows by key and time. `changes`: ordered by time, and consolidated at each time.

    `key`: the columns of the key; None: each pair has only an old or only a new row. A row occurs |diff| times.
    KeyViolation if `is_unique` and there are two old or two new rows with the same key at one time.
    """
    diffs = changes[DIFF].to_numpy()
    if is_unique and key is not None and (several := np.flatnonzero(np.abs(diffs) > 1)).size:
        raise KeyViolation(
            changes.select(list(key)).slice(int(several[0]), 1)
        )  # np.repeat below needs memory for each copy
    groups = np.arange(len(diffs)) if key is None else _numbered(changes.select([*key, changes.num_columns - 2]))
    rows = np.repeat(np.arange(len(diffs)), np.abs(diffs))
    order = np.lexsort((diffs[rows] > 0, groups[rows]))  # stable
    rows = rows[order]
    group, is_new = groups[rows], diffs[rows] > 0
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (np.diff(group) != 0) | (is_new[1:] != is_new[:-1])
    starts = np.flatnonzero(begins)
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    if is_unique and key is not None and rank.any():
        raise KeyViolation(changes.select(list(key)).slice(int(rows[np.flatnonzero(rank)[0]]), 1))
    width = int(rank.max(initial=0)) + 1
    codes, at = np.unique(group * width + rank, return_inverse=True)
    before, after = np.full((2, len(codes)), NONE)
    before[at[~is_new]] = rows[~is_new]
    after[at[is_new]] = rows[is_new]
    return Pairs(before, after, codes // width)


def check_unique(rows: pa.Table, key: Sequence[int]) -> None:
    """KeyViolation if two of the rows have the same key. NULL equals NULL."""
    keys = rows.select(list(key))
    repeated = np.flatnonzero(updates.sums_of_equal(keys, np.ones(keys.num_rows, np.int64)) == 0)
    if len(repeated):
        raise KeyViolation(keys.slice(int(repeated[0]), 1))


def _numbered(keys: pa.Table) -> Integers:
    """Numbers the distinct keys 0, 1, ... in the order of their first appearance. Returns the number of each row."""
    _, first, inverse = np.unique(updates.row_numbers(keys), return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse]


def _of_multiset(changes: pa.Table) -> NetChanges:
    is_deleted = pc.less(changes[DIFF], 0)
    gone = changes.filter(is_deleted)
    counts = pc.negate(gone[DIFF])
    staged = updates.rows_of(gone).append_column(pa.field(COUNT, pa.int64()), counts)
    return NetChanges(staged, pc.sum(counts).as_py() or 0, 0, updates.expand(changes.filter(pc.invert(is_deleted))))


def _of_keys(changes: pa.Table, key: Sequence[int]) -> NetChanges:
    rows, diffs = updates.rows_of(changes), changes[DIFF].to_numpy()
    check_key(rows, key)
    keys = rows.select(list(key))
    if (several := np.flatnonzero(np.abs(diffs) > 1)).size:
        raise KeyViolation(keys.slice(int(several[0]), 1))
    numbers = updates.row_numbers(keys)
    old, new = np.flatnonzero(diffs < 0), np.flatnonzero(diffs > 0)
    for among in (old, new):
        distinct, first = np.unique(numbers[among], return_index=True)
        if len(distinct) < len(among):
            repeated = np.delete(among, first)
            raise KeyViolation(keys.slice(int(repeated[0]), 1))
    _, in_old, in_new = np.intersect1d(numbers[old], numbers[new], assume_unique=True, return_indices=True)
    deleted, inserted = np.delete(old, in_old), np.delete(new, in_new)
    updated = _staged(rows, key, old[in_old], new[in_new])
    staged = pa.concat_tables([_staged(rows, key, deleted, None), updated])
    return NetChanges(staged, len(deleted), len(in_old), rows.take(pa.array(inserted)))


def _staged(rows: pa.Table, key: Sequence[int], old: NDArray[Any], new: NDArray[Any] | None) -> pa.Table:
    found = rows.take(pa.array(old))
    values = None if new is None else rows.take(pa.array(new))
    for position, field in enumerate(rows.schema):
        if position not in key:
            column = pa.nulls(len(old), field.type) if values is None else values.column(position)
            found = found.append_column(pa.field(f"n{position}", field.type), column)
    return found.append_column(UPDATED, pa.array(np.full(len(old), new is not None)))
