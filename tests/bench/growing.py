"""Tables whose rows are replaced: at each time some are deleted and as many inserted, without a stored table.

A table of n rows is a window over the natural numbers. Row number i is computed from i alone. Deletions are at the
beginning of the window, insertions at its end. `t` has ten rows per key, and inserted rows have other keys than deleted
ones. `u` and `w` have one row per key, and a deleted row is inserted again with other values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.tables import Table
from catalog.state import CatalogState
from server.sql.plan import QueryPlan
from tests.server.states import planned_for_maintenance, state_with_tables

TABLES = {
    "t": {"k": "int4", "v": "int4", "s": "text"},
    "u": {"k": "int4", "g": "int4", "f": "float8"},
    "w": {"g": "int4", "h": "text"},
}
START = Timestamp(1)
TEXTS = pa.array([f"s{number:03}" for number in range(1000)])

Numbers = NDArray[np.int64]


@cache
def state() -> CatalogState:
    return state_with_tables(TABLES)


def planned(sql: str) -> QueryPlan:
    return planned_for_maintenance(sql, state())


class Growing:
    """Tables of `size` rows each, from `START` on. Each `change` adds one time. Implements `Inputs`."""

    def __init__(self, size: int, inputs: frozenset[ObjectId], changing: str | None = None) -> None:
        """`inputs`: the ids of the tables. `changing`: the name of the only table that changes; None: all change."""
        self.size = size
        self.now = START
        self._inputs = sorted(id for id in inputs if changing in (None, _name(id)))
        self._windows: dict[ObjectId, list[tuple[Timestamp, int, int]]] = {id: [(START, 0, size)] for id in inputs}

    def change(self, lines: int) -> Timestamp:
        """Adds a time at which that many rows are inserted or deleted, in all tables together. Returns it."""
        self.now = Timestamp(self.now + 1)
        share = -(-lines // len(self._inputs))
        for id in self._inputs:
            count, lines = min(share, lines), lines - min(share, lines)
            if count:
                _, first, end = self._windows[id][-1]
                comes = (count + 1) // 2 if end - first <= self.size else count // 2  # an odd row is an insertion
                self._windows[id].append((self.now, first + count - comes, end + comes))
        return self.now

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """No collection has an error."""

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """Needs no check: every deleted row existed."""

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        return self.size if lower == 0 else 0

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return [time for time, _, _ in self._windows[id][1:] if lower <= time < upper]

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        first, end = self._window(id, as_of)
        name = _name(id)
        base = _base(name, self.size)
        return pa.concat_tables([base.slice(min(first, self.size)), _rows(name, max(first, self.size), end, self.size)])

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        (first, end), (next_first, next_end) = self._window(id, lower - 1), self._window(id, upper - 1)
        name = _name(id)
        gone, come = _rows(name, first, next_first, self.size), _rows(name, end, next_end, self.size)
        return pa.concat_tables([updates.with_diff(gone, -1), updates.with_diff(come, 1)])

    def _window(self, id: ObjectId, time: int) -> tuple[int, int]:
        windows = self._windows[id]
        _, first, end = windows[bisect_right(windows, time, key=lambda window: window[0]) - 1]
        return first, end


def _name(id: ObjectId) -> str:
    item = state().items[id]
    assert isinstance(item, Table)
    return item.name


@cache
def _base(name: str, size: int) -> pa.Table:
    return _rows(name, 0, size, size)


def _rows(name: str, first: int, end: int, size: int) -> pa.Table:
    numbers: Numbers = np.arange(first, end, dtype=np.int64)
    return pa.table(_columns(name, numbers, size), names=[f"c{i}" for i in range(len(TABLES[name]))])


def _columns(name: str, numbers: Numbers, size: int) -> list[pa.Array]:
    groups = max(size // 10, 1)
    round_ = numbers // size
    match name:
        case "t":
            keys = (numbers * 7919 + round_ * 31) % groups
            return [_int4(keys), _int4(numbers % 100_003), TEXTS.take(pa.array((numbers + numbers // groups) % 1000))]
        case "u":
            return [_int4(numbers % size), _int4((numbers * 31 + round_) % groups), pa.array((numbers % 1009) / 4)]
    return [_int4(numbers % size), TEXTS.take(pa.array((numbers + round_) % 1000))]


def _int4(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int32))
