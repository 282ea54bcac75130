"""Conflicts between statements that read rows with given keys, and concurrent commits to the same table.

A request that read only rows whose column has one of some values depends on no other rows. It is invalidated by a
commit that adds or removes a row with one of these values, even if the row gets or loses the value by an UPDATE: both
versions of the row are in the commit.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import ObjectId, Timestamp
from server.coordinator.row_buffer import RowBuffer, table_of

WRITES_MAX = 256  # commits kept per table; more since a read count as a conflict
ROWS_MAX = 4_096  # a write of more rows is a conflict for all keys; shared payloads seldom have more
BYTES_MAX = 1 << 20  # as is one of more bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """The rows whose column, by its number, has one of these values."""

    column: int
    values: frozenset[Any]

    @staticmethod
    def of(column: int, values: pa.Array | pa.ChunkedArray) -> Keys:
        found = _plain(values).to_pylist()
        if pa.types.is_floating(values.type):
            found = ["NaN" if value != value else value for value in found]  # all NaN are equal
        return Keys(column, frozenset(found))

    def others(self, rows: pa.Table) -> pa.Table:
        """The rows that have none of these keys."""
        column = _plain(rows.column(self.column))
        values: list[Any] = list(self.values)
        if pa.types.is_floating(column.type):
            values = [math.nan if value == "NaN" else value for value in values]
            column = pc.add(column, pa.scalar(0.0, column.type))  # 0.0 for -0.0
        return rows.filter(pc.invert(pc.is_in(column, value_set=pa.array(values, column.type))))


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The values; dates and times as integers."""
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values


class Write:
    """The change of a collection by a request or a commit: rows that are added or removed, or an error."""

    __slots__ = ("_keys", "_rows")

    def __init__(self, rows: pa.Table | RowBuffer | None) -> None:
        """`rows` None: an error, which concerns all rows. The few rows of a `RowBuffer` are converted on demand."""
        if isinstance(rows, pa.Table) and (rows.num_rows > ROWS_MAX or rows.get_total_buffer_size() > BYTES_MAX):
            rows = None
        self._rows = rows
        self._keys: dict[int, Keys] = {}

    def touches(self, keys: Keys) -> bool:
        """Whether a row has one of the keys. True if that is not known."""
        rows = self._rows
        if rows is None:
            return True
        own = self._keys.get(keys.column)
        if own is None:
            if isinstance(rows, RowBuffer):
                try:
                    rows = self._rows = table_of(rows.rows, rows.schema)
                except Exception:  # the commit of these rows fails with the error
                    return True
            own = self._keys[keys.column] = Keys.of(keys.column, rows.column(keys.column))
        return not own.values.isdisjoint(keys.values)


class RecentWrites:
    """The latest commits of each table."""

    def __init__(self) -> None:
        self._writes: dict[ObjectId, deque[tuple[Timestamp, Write]]] = {}
        self._forgotten: dict[ObjectId, Timestamp] = {}  # the time of the latest write that is not kept

    def add(self, table: ObjectId, time: Timestamp, write: Write) -> None:
        kept = self._writes.setdefault(table, deque())
        kept.append((time, write))
        if len(kept) > WRITES_MAX:
            self._forgotten[table], _ = kept.popleft()

    def touch(self, table: ObjectId, after: Timestamp, keys: Keys) -> bool:
        """Whether a commit after that time may have added or removed a row with one of the keys."""
        if self._forgotten.get(table, 0) > after:
            return True
        for time, write in reversed(self._writes.get(table, ())):
            if time <= after:
                break
            if write.touches(keys):
                return True
        return False

    def forget(self, table: ObjectId) -> None:
        """Removes a dropped table."""
        self._writes.pop(table, None)
        self._forgotten.pop(table, None)
