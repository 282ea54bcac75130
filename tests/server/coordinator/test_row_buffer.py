"""Rows of INSERTs as Python scalars: those of a group of requests share payloads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId, Timestamp
from catalog.log import INLINE_BYTES, Log
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from server.coordinator import row_buffer
from server.coordinator.committer import Conflict, Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.key_conflicts import Keys
from server.coordinator.row_buffer import CONVERTED_ROWS, RowBuffer, payloads_of, table_of
from server.runtime.metrics import Metrics
from tests.server.slow_engine import PassingEngine

SCHEMA = pa.schema(
    [("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.decimal128(38, 2)), ("c3", pa.list_(pa.int32()))]
)
rows = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=300),
    st.none() | st.decimals(-1000, 1000, places=2),
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=2),
)
lists_of_rows = st.lists(rows, min_size=1, max_size=5)


def buffer_of(rows: list[tuple[object, ...]]) -> RowBuffer:
    buffer = RowBuffer(SCHEMA)
    for row in rows:
        buffer.add([row])
    return buffer


@given(st.lists(lists_of_rows, min_size=1, max_size=4), st.integers(1, 40))
def test_payloads_have_the_rows_of_all_buffers(log: Log, parts: list[list[tuple[object, ...]]], times: int) -> None:
    buffers = [buffer_of(rows) for rows in parts] * times
    payloads = list(payloads_of(log, buffers))
    assert pa.concat_tables([p.table for p in payloads]).equals(pa.concat_tables([b.table() for b in buffers]))
    assert all(payload.file is None for payload in payloads)
    assert len(payloads) <= 1 + 2 * sum(buffer.bytes for buffer in buffers) // INLINE_BYTES


@given(lists_of_rows)
def test_the_size_of_rows_is_not_underestimated(rows: list[tuple[object, ...]]) -> None:
    buffer = buffer_of(rows)
    assert buffer.is_few is (buffer.bytes <= 4_096)
    assert buffer.bytes >= table_of(rows, SCHEMA).nbytes - 64  # validity bitmaps and last offsets


def test_many_rows_are_converted_while_they_arrive() -> None:
    row = (1, "a", Decimal("1.50"), None)
    buffer = buffer_of([row] * (2 * CONVERTED_ROWS + 3))
    assert len(buffer.rows) == 3
    assert buffer.table().equals(table_of([row] * (2 * CONVERTED_ROWS + 3), SCHEMA))
    assert not buffer.is_few


@pytest.mark.long
def test_many_rows_are_kept_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's memory does not grow with the number of rows, also after truncations."""
    monkeypatch.setattr(row_buffer, "FILE_BYTES", 1 << 20)
    rows = [(number, f"{number:>60}", None, [number % 9]) for number in range(40 * CONVERTED_ROWS)]
    buffer, before = RowBuffer(SCHEMA, tmp_path), pa.total_allocated_bytes()
    worst = 0
    kept: list[tuple[object, ...]] = []
    for part in range(40):
        added = rows[part * CONVERTED_ROWS : (part + 1) * CONVERTED_ROWS]
        buffer.add(added)
        kept += added
        if part % 15 == 14:
            del kept[-CONVERTED_ROWS * 2 - 7 :]
            buffer.truncate(len(kept))
        worst = max(worst, pa.total_allocated_bytes() - before)
    assert buffer.count == len(kept)
    assert worst < 4 << 20
    assert buffer.table().to_pylist() == table_of(kept, SCHEMA).to_pylist()


async def test_rows_of_a_group_share_a_batch_and_invalid_rows_fail_only_their_request(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, engine=PassingEngine(), metrics=Metrics(), interval_s=10, system_tables={})
    await coordinator.start()
    id, before = ObjectId("u4"), coordinator.state
    table = Table(id, ObjectId("u2"), "t", (Column("a", "int8"),))
    await coordinator.commit(Request(catalog=(before, replace(before.with_item(table), version=before.version + 1))))
    schema = pa.schema([("c0", pa.int64())])

    async def insert(value: object) -> int:
        buffer = RowBuffer(schema)
        buffer.add([(value,)])
        return (await coordinator.commit(Request(rows={id: buffer}))).time

    times = await asyncio.gather(*(insert(i) for i in range(20)))
    assert len(set(times)) == 1
    assert len(coordinator.log.batches(id)) == 1
    found = await asyncio.gather(*(insert("x" if i == 5 else i) for i in range(10)), return_exceptions=True)
    assert [i for i, outcome in enumerate(found) if isinstance(outcome, pa.ArrowInvalid)] == [5]

    async def read_then_write(key: int, read_at: int) -> int:
        keys = {id: Keys(0, frozenset({key}))}
        return (await coordinator.commit(Request(unchanged={id: Timestamp(read_at)}, keys=keys))).time

    read_at = times[0]
    found = await asyncio.gather(
        insert(30), *(read_then_write(key, read_at) for key in (30, 31)), return_exceptions=True
    )
    assert [isinstance(outcome, Conflict) for outcome in found] == [False, True, False], "in the same group"
    with pytest.raises(Conflict):
        await read_then_write(30, read_at)
    await read_then_write(31, read_at)
    rows = coordinator.log.rows(id, coordinator.latest_time(), schema)
    assert sorted(rows["c0"].to_pylist()) == sorted([*range(20), *(i for i in range(10) if i != 5), 30])
    await coordinator.close()
