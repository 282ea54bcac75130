"""Rows with given keys, selected from an older snapshot and later changes, are those of a read of all rows."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import ObjectId
from catalog.log import Compacted, Log
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from server.coordinator import recent_changes, snapshot_cache
from server.coordinator.snapshot_cache import SnapshotCache, collection_schema

T = Table(ObjectId("u1"), ObjectId("u0"), "t", (Column("k", "int8"), Column("v", "text")))
SCHEMA = collection_schema(T)


class MemoryLog:
    """The commits of one table. Changes at times up to `merged_to` are compacted."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, pa.Table]] = []
        self.merged_to = 0

    def times(self, id: ObjectId, lower: int, upper: int) -> list[int]:
        return [time for time, _ in self.commits if lower <= time < upper]

    def row_count(self, id: ObjectId, lower: int, upper: int) -> int:
        return sum(table.num_rows for table in self._between(lower, upper))

    def tables(self, id: ObjectId, lower: int, upper: int, layout: object = None) -> list[pa.Table]:
        if lower <= self.merged_to:
            raise Compacted
        return self._between(lower, upper)

    def changes(self, id: ObjectId, lower: int, upper: int, schema: pa.Schema, layout: object = None) -> pa.Table:
        tables = map(updates.as_changes, self.tables(id, lower, upper))
        return updates.consolidate(pa.concat_tables([updates.with_diff(schema.empty_table(), 1), *tables]))

    def rows(self, id: ObjectId, as_of: int, schema: pa.Schema, layout: object = None) -> pa.Table:
        tables = map(updates.as_changes, self._between(0, as_of + 1))
        whole = pa.concat_tables([updates.with_diff(schema.empty_table(), 1), *tables])
        return updates.expand(updates.consolidate(whole))

    def _between(self, lower: int, upper: int) -> list[pa.Table]:
        return [table for time, table in self.commits if lower <= time < upper]


def rows(values: list[tuple[int | None, str]]) -> pa.Table:
    return pa.table([pa.array([k for k, _ in values], pa.int64()), pa.array([v for _, v in values])], schema=SCHEMA)


def sorted_rows(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


ROW = st.tuples(st.none() | st.integers(0, 4), st.sampled_from("ab"))
STEP = st.tuples(
    st.lists(ROW, max_size=3),  # rows to add
    st.integers(0, 2),  # the number of rows to remove
    st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True),  # the keys to read
    st.sampled_from(["latest", "latest", "earlier", "previous", "all", "merge"]),
)


@given(st.lists(STEP, max_size=12), st.booleans(), st.booleans(), st.booleans())
async def test_selected_rows_are_those_of_the_whole(
    steps: list[Any], large: bool, advances: bool, read_before: bool
) -> None:
    log = MemoryLog()
    cache = SnapshotCache(cast(Log, log))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_changes, "TABLES_MAX", 2)
        patch.setattr(recent_changes, "ROWS_MAX", 6)
        patch.setattr(snapshot_cache, "OUTDATED_ROWS", 1)
        patch.setattr(snapshot_cache, "SMALL_ROWS", 5 if advances else 0)
        if large:  # as if the tables had more rows
            patch.setattr(snapshot_cache, "THREAD_ROWS", 0)
            patch.setattr(snapshot_cache, "LOOP_POSITIONS_MAX", 1)
        for number, (added, removed, keys, what) in enumerate(steps):
            time = 10 * number + 10
            present = log.rows(T.id, time, SCHEMA)
            log.commits.append((time, updates.consolidate(pa.concat_tables([
                updates.with_diff(rows(added), 1), updates.with_diff(present.slice(0, removed), -1),
            ]))))  # fmt: skip
            if what == "all":
                assert sorted_rows(await cache.rows(T, time)) == sorted_rows(log.rows(T.id, time, SCHEMA))
            if what == "merge":
                log.merged_to = time
            is_readable = log.merged_to < time - 10
            as_of = time - {"earlier": 7, "previous": 10}.get(what, 0) * is_readable
            wanted = pa.array(keys, pa.int64())
            if read_before:  # a transaction that reads at an earlier time than others have
                await cache.selected(T, time, [(0, wanted)])
            found = await cache.selected(T, as_of, [(0, wanted)])
            whole = log.rows(T.id, as_of, SCHEMA)
            mask = [key in keys for key in whole.column(0).to_pylist()]
            assert sorted_rows(found) == sorted_rows(whole.filter(pa.array(mask, pa.bool_())))
