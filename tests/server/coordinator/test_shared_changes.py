"""Few changes of a group's requests share payloads: the log has the changes that separate payloads would have."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Numbering
from catalog.log import INLINE_BYTES, Log
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from server.coordinator.committer import Commit, Conflict, Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.key_conflicts import Keys
from server.coordinator.payloads import few_changes, shared_payloads
from server.coordinator.row_buffer import FEW_BYTES, RowBuffer
from server.coordinator.snapshot_cache import layout_of
from server.runtime.metrics import Metrics
from tests.catalog.strategies import changes_tables, pairs
from tests.server.slow_engine import PassingEngine

TYPES = (pa.int64(), pa.string(), pa.float64())


def change(key: int, old: int, new: int) -> pa.Table:
    """The change of the row `(key, old)` to `(key, new)`."""
    schema = updates.rows_schema([pa.int64(), pa.int64()])
    rows = [pa.table([[key], [value]], schema=schema) for value in (old, new)]
    found = few_changes([updates.with_diff(rows[0], -1), rows[1]])
    assert found is not None
    return found


@given(st.lists(changes_tables(TYPES), min_size=1, max_size=4))
def test_shared_payloads_have_the_changes_of_all_requests(log: Log, tables: list[pa.Table]) -> None:
    payloads = list(shared_payloads(log, tables))
    expected = updates.consolidate(pa.concat_tables(tables))
    assert [pair for payload in payloads for pair in pairs(payload.table)] == pairs(expected)
    assert len(payloads) == (1 if expected.num_rows else 0)


def test_shared_payloads_are_small(log: Log) -> None:
    tables = [change(key, 0, 1) for key in range(4_000)]
    payloads = list(shared_payloads(log, tables))
    assert len(payloads) > 1
    assert all(payload.file is None and payload.bytes < 2 * INLINE_BYTES for payload in payloads)
    assert sum(payload.table.num_rows for payload in payloads) == 2 * len(tables)


def test_few_changes_keep_no_memory_of_other_callers() -> None:
    schema = updates.rows_schema([pa.int64()])
    whole = pa.table([range(100_000)], schema=schema)
    found = few_changes([updates.with_diff(whole.slice(5, 2), -1)])
    assert found is not None
    assert pairs(found) == [((5,), -1), ((6,), -1)]
    assert found.get_total_buffer_size() <= 2 * FEW_BYTES
    assert few_changes([whole]) is None


async def started_with_table(directory: Path) -> tuple[Coordinator, Table]:
    """A coordinator, and its table of two bigints."""
    coordinator = Coordinator(directory, engine=PassingEngine(), metrics=Metrics(), interval_s=10, system_tables={})
    await coordinator.start()
    before = coordinator.state
    table = Table(ObjectId("u4"), ObjectId("u2"), "t", (Column("a", "int8"), Column("b", "int8")))
    await coordinator.commit(Request(catalog=(before, replace(before.with_item(table), version=before.version + 1))))
    return coordinator, table


async def test_changes_of_a_group_share_a_batch_and_conflicting_ones_are_refused(tmp_path: Path) -> None:
    coordinator, table = await started_with_table(tmp_path)
    id = table.id
    schema = updates.rows_schema([pa.int64(), pa.int64()])
    first = coordinator.log.prepare(pa.table([range(20), [0] * 20], schema=schema))
    read_at = (await coordinator.commit(Request(writes=[(id, first)]))).time

    async def set_b(key: int, old: int, new: int, read_at: int) -> int:
        request = Request(
            changes={id: change(key, old, new)},
            unchanged={id: Timestamp(read_at)},
            keys={id: Keys(0, frozenset({key}))},
        )
        return (await coordinator.commit(request)).time

    times = await asyncio.gather(*(set_b(key, 0, 1, read_at) for key in range(20)))
    assert len(set(times)) == 1
    assert len(coordinator.log.batches(id)) == 2
    same_key = await asyncio.gather(*(set_b(3, 1, new, times[0]) for new in (5, 6)), return_exceptions=True)
    assert [isinstance(outcome, Conflict) for outcome in same_key] == [False, True], "in the same group"
    with pytest.raises(Conflict):
        await set_b(3, 1, 7, times[0])
    unchanged = await set_b(4, 1, 1, times[0])
    assert len(coordinator.log.batches(id)) == 3, "a change of nothing writes nothing"
    rows = coordinator.log.rows(id, Timestamp(unchanged), schema)
    assert sorted(map(tuple, zip(*rows.to_pydict().values(), strict=True))) == [
        (key, 5 if key == 3 else 1) for key in range(20)
    ]
    await coordinator.close()


async def test_rows_are_stored_in_the_columns_for_which_they_were_computed(tmp_path: Path) -> None:
    """A table is altered, to as many columns as before, by a request that waits together with inserts."""
    coordinator, table = await started_with_table(tmp_path)
    id = table.id
    state, null = coordinator.state, pa.scalar(None, pa.int64())
    numbering = Numbering.initial(2).dropped(0).added(null)
    altered = replace(table, columns=(Column("b", "int8"), Column("c", "int8")), numbering=numbering)
    schema = updates.rows_schema([pa.int64(), pa.int64()])

    def insert(row: tuple[int, int]) -> Request:
        rows = RowBuffer(schema)
        rows.add([row])
        return Request(rows={id: rows}, tables={id: table})

    alter = Request(catalog=(state, replace(state.with_item(altered), version=state.version + 1)))
    requests = [insert((1, 2)), alter, insert((3, 4))]
    first, second, third = await asyncio.gather(*map(coordinator.commit, requests), return_exceptions=True)
    assert isinstance(first, Commit)
    assert isinstance(second, Commit)
    assert first.time < second.time
    assert isinstance(third, Conflict)
    rows = coordinator.log.rows(id, second.time, schema, layout_of(altered))
    assert rows.to_pylist() == [{"c0": 2, "c1": None}]
    await coordinator.close()
