"""The rows of a table that changes delete, update and insert."""

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


class KeyViolation(Exception):
    """The values of a key that more than one row has, or one that is NULL. `row`: the values of the key's columns."""

    def __init__(self, row: pa.Table) -> None:
        super().__init__()
        self.row = row


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
    """`changes`: with times, which are ignored. `key`: the columns of the key; None: equal rows may repeat.

    KeyViolation if the changes show that two rows have the same key, or that a key is NULL.
    """
    changes = updates.consolidate(changes.drop_columns([TIME]) if TIME in changes.column_names else changes)
    return _of_multiset(changes) if key is None else _of_keys(changes, key)


def check_key(rows: pa.Table, key: Sequence[int]) -> None:
    """KeyViolation if a column of the key is NULL."""
    columns = rows.select(list(key))
    for column in columns.columns:
        if column.null_count:
            raise KeyViolation(columns.filter(column.is_null()).slice(0, 1))


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
