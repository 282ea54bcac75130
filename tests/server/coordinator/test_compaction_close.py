"""What happens during a merge of compaction: the server closes, commits, or drops the collection."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from catalog.ids import ObjectId, Timestamp
from catalog.log import Dropped, Log
from catalog.merge_runs import MERGE_BATCHES
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.updates import DIFF
from server.coordinator.committer import Request
from server.coordinator.compaction import compact_collection
from server.coordinator.payloads import prepare_payloads
from server.runtime.threads import thread_to_the_end
from server.timeline.frontiers import Frontiers
from tests.catalog.test_log import Opened, T, rows
from tests.polling import HANG_S
from tests.server.ingest.child import opened

TABLE = Table(ObjectId("u10"), ObjectId("u2"), "t", (Column("n", "int8"),), retain_ms=0)
ROWS = 20_000  # too many for a payload in SQLite


async def test_a_merge_in_progress_ends_before_the_close_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    prepare = Log.prepare

    def slow(self: Log, table: pa.Table, *more: Any) -> Any:
        if table.num_rows > ROWS:
            begun.set()
            assert may_end.wait(HANG_S)
        return prepare(self, table, *more)

    monkeypatch.setattr(Log, "prepare", slow)
    coordinator = opened(tmp_path)
    await coordinator.start()
    before = coordinator.state
    await coordinator.commit(Request(catalog=(before, replace(before.with_item(TABLE), version=before.version + 1))))
    for number in range(8):
        values = np.arange(number * ROWS, (number + 1) * ROWS)
        rows = pa.table([values, np.ones(ROWS, np.int64)], ["c0", DIFF])
        await coordinator.commit(Request(writes=await prepare_payloads(coordinator.log, {TABLE.id: [rows]})))
    assert await asyncio.to_thread(begun.wait, 10)
    named = {batch.file for batch in coordinator.log.batches(TABLE.id)}
    closing = asyncio.create_task(coordinator.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    may_end.set()
    await closing
    assert {path.name for path in (tmp_path / "payloads").iterdir()} == named


async def test_the_result_of_a_cancelled_thread_is_discarded_once_it_has_ended() -> None:
    may_end = threading.Event()
    discarded: list[int] = []

    def work(number: int) -> int:
        assert may_end.wait(HANG_S)
        if number < 0:
            raise ValueError(number)
        return number

    tasks = [asyncio.create_task(thread_to_the_end(work, n, discard=discarded.append)) for n in (1, -1)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in tasks)
    may_end.set()
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*tasks, return_exceptions=True)
    )
    assert discarded == [1]
    assert await thread_to_the_end(work, 2, discard=discarded.append) == 2
    assert discarded == [1]


async def test_history_that_was_released_during_a_merge_is_not_merged_with_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is before `since` afterwards, and the next pass consolidates it: to keep its times would be in vain."""

    class Released(Frontiers):
        time = MERGE_BATCHES

        def log_start(self, id: ObjectId) -> Timestamp:
            return Timestamp(self.time)

    files = Opened(tmp_path)
    files.create(T)
    for time in range(1, 3 * MERGE_BATCHES):
        files.write(time, (T, rows(time)))
    frontiers = Released()
    frontiers.created(T, Timestamp(0), None)
    frontiers.tables_upper = Timestamp(1_000_000)
    merge = Log.merge

    def released(self: Log, run: Any) -> Any:
        frontiers.time = 2 * MERGE_BATCHES
        return merge(self, run)

    monkeypatch.setattr(Log, "merge", released)
    assert await compact_collection(files.store, files.log, frontiers, T) == MERGE_BATCHES
    assert len(files.log.batches(T)) == 2 * MERGE_BATCHES
    files.store.close()


async def test_a_collection_that_is_dropped_during_its_merge_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = asyncio.Queue[None]()
    loop = asyncio.get_running_loop()

    def dropped(self: Log, run: Any) -> Any:
        loop.call_soon_threadsafe(passes.put_nowait, None)
        raise Dropped(TABLE.id)

    monkeypatch.setattr(Log, "_read_for_merge", dropped)
    with capture_logs() as events:
        coordinator = opened(tmp_path)
        await coordinator.start()
        before = coordinator.state
        after = replace(before.with_item(TABLE), version=before.version + 1)
        await coordinator.commit(Request(catalog=(before, after)))
        for _ in range(8):
            rows = pa.table([np.arange(ROWS), np.ones(ROWS, np.int64)], ["c0", DIFF])
            await coordinator.commit(Request(writes=await prepare_payloads(coordinator.log, {TABLE.id: [rows]})))
        async with asyncio.timeout(HANG_S):
            for _ in range(2):
                await passes.get()
        await coordinator.close()
    assert [event for event in events if event["log_level"] == "error"] == []
