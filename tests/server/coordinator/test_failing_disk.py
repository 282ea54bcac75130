"""Failing disks: background work continues when the disk can be written again."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from catalog.ids import ObjectId, Timestamp
from catalog.log import Log
from catalog.objects.columns import Column
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView
from catalog.payloads import Payloads
from catalog.store import Store
from protocol.pgwire.errors import SqlState
from server.coordinator.committer import Request
from server.coordinator.compaction import compact
from server.coordinator.coordinator import Coordinator
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime.computation import Hold
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.runtime.hydration import Hydration
from server.runtime.errors import to_pg_error
from server.runtime.logs import _Stderr
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine

TABLE, VIEW = ObjectId("u4"), ObjectId("u5")


async def test_compaction_continues_when_free_pages_cannot_be_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    passes = asyncio.Queue[None]()

    async def full(self: Store) -> bool:
        passes.put_nowait(None)
        raise sqlite3.OperationalError("database or disk is full")

    async def nothing() -> None:
        """No collection has an error."""

    monkeypatch.setattr(Store, "give_back", full)
    log = Log(store, Payloads(tmp_path / "payloads"))
    task = asyncio.create_task(compact(store, log, Frontiers(), Metrics(), 0.001, nothing))
    async with asyncio.timeout(HANG_S):
        for _ in range(3):
            await passes.get()
    task.cancel()
    store.close()


async def test_a_durable_commit_is_acknowledged_although_a_listener_fails(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, engine=PassingEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})
    await coordinator.start()
    before = coordinator.state
    table = Table(TABLE, ObjectId("u2"), "t", (Column("a", "int8"),))
    await coordinator.commit(Request(catalog=(before, replace(before.with_item(table), version=before.version + 1))))

    def broken(time: Timestamp, written: object) -> None:
        raise MemoryError

    coordinator._committer.listeners.append(broken)
    rows = pa.table({"c0": pa.array(range(20_000), pa.int64())})  # large enough for a payload file
    payload = coordinator.log.prepare(rows)
    time = (await coordinator.commit(Request(writes=[(TABLE, payload)]))).time
    assert coordinator.latest_time() >= time
    assert coordinator.log.rows(TABLE, time, rows.schema).num_rows == rows.num_rows
    await coordinator.close()


class Constant:
    """A computation over TABLE with one row as its output."""

    inputs = frozenset({TABLE})
    fingerprint = "constant"
    arrangements = ()
    relevant: ClassVar[dict[ObjectId, list[KeyValues]]] = {}
    next_time = None

    def __init__(self) -> None:
        self.hydration = Hydration()

    async def hydrate(self, as_of: Timestamp, known: pa.Table | None = None) -> pa.Table:
        return pa.table({"c0": [1]})

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        return []

    def pass_to(self, time: Timestamp) -> None:
        """Does nothing, because there is no state."""

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        """Does nothing, because no step drops the state."""

    def close(self) -> None:
        """Does nothing, because there are no resources."""

    async def closed(self) -> None:
        """Returns at once."""


class FullSink:
    """A sink whose first two writes fail."""

    retries = True
    awaited = None

    def __init__(self) -> None:
        self.upper = Timestamp(1)
        self.refusals = 2
        self.written: list[tuple[int, int]] = []

    def first_time(self, time: Timestamp) -> Timestamp:
        return time

    async def rows(self) -> pa.Table | None:
        return None

    async def begin(self, time: Timestamp, rows: pa.Table, known: pa.Table | None) -> None:
        if self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database or disk is full")
        self.written.append((time, rows.num_rows))
        self.upper = Timestamp(time + 1)

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        raise AssertionError("the input does not change")

    def advance(self, upper: Timestamp) -> None:
        self.upper = upper

    def failed(self, error: object, upper: Timestamp) -> None:
        raise AssertionError("the query does not fail")

    def close(self) -> None:
        """Does nothing, because there are no resources."""


async def test_a_materialized_view_is_written_when_the_disk_has_space_again() -> None:
    frontiers = Frontiers()
    frontiers.created(TABLE, Timestamp(1), None)
    frontiers.tables_upper = Timestamp(2)
    sink = FullSink()
    view = MaterializedView(VIEW, ObjectId("u2"), "v", (Column("c", "int8"),), "SELECT 1", frozenset({TABLE}))
    holder = frontiers.hold({TABLE}, 1)
    dataflow = Dataflow(VIEW, Constant(), sink, frontiers, holder, Metrics(), item=view)
    task = asyncio.create_task(dataflow.run())
    async with asyncio.timeout(HANG_S):
        while not sink.written:
            frontiers.moved.fire()  # time advances independently of the disk
            await asyncio.sleep(0.001)
    task.cancel()
    assert sink.written == [(1, 1)]
    assert sink.refusals == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_53100(number: int) -> None:
    assert to_pg_error(OSError(number, "no room")).sqlstate == SqlState.DISK_FULL


def test_a_failing_disk_is_58030(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_WRITE"
    assert to_pg_error(error).sqlstate == SqlState.IO_ERROR


def test_failed_writes_to_stderr_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(OSError, match="No space"):
        print("x", file=sys.stderr, flush=True)
    print("x", file=_Stderr(), flush=True)
    with pytest.raises(OSError, match="No space"):
        full.close()


async def test_a_shutdown_skips_reserved_values_of_sequences_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = Sequence(ObjectId("u4"), ObjectId("u2"), "s", ())

    def opened() -> Coordinator:
        return Coordinator(tmp_path, engine=PassingEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})

    async def full(self: Store, act: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    coordinator = opened()
    await coordinator.start()
    before = coordinator.state
    after = replace(before.with_item(sequence), version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after)))
    ((first, _),) = await coordinator.sequences.state(sequence).take(sequence, 1)
    with monkeypatch.context() as patched, capture_logs() as events:
        patched.setattr(Store, "transaction", full)
        await coordinator.close()
    assert "values of sequences not stored" in [event["event"] for event in events]
    coordinator = opened()
    await coordinator.start()
    ((following, _),) = await coordinator.sequences.state(sequence).take(sequence, 1)
    assert following > first
    await coordinator.close()
