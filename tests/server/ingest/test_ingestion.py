"""Ingestion writes each change of an external system exactly once, also after failures and kills of the server."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest

from catalog import source_state
from catalog.store import FILE
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.ingestion import Ingestion, Status
from tests.polling import HANG_S
from tests.server.ingest.child import define, opened
from tests.server.ingest.numbers import PARTS, TABLE, Numbers

COUNT = 40
KILLS = 3


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Coordinator]:
    coordinator = opened(directory)
    await coordinator.start()
    await define(coordinator)
    try:
        yield coordinator
    finally:
        await coordinator.close()


@asynccontextmanager
async def running(coordinator: Coordinator, upstream: Numbers) -> AsyncIterator[Ingestion]:
    ingestion = Ingestion(TABLE.id, upstream, coordinator, retry_s=0.001)
    task = asyncio.create_task(ingestion.run())
    try:
        yield ingestion
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert upstream.opened == upstream.closed


async def until(coordinator: Coordinator, condition: Callable[[], bool]) -> None:
    """Waits for a condition. The frontier moves with each commit, and every few milliseconds without one."""
    while not condition():
        await coordinator.frontiers.moved.wait()


async def numbers(coordinator: Coordinator) -> list[tuple[int, int]]:
    rows = await coordinator.reads.rows(TABLE.id, coordinator.latest_time())
    return sorted(zip(rows["c0"].to_pylist(), rows["c1"].to_pylist(), strict=True))


def each_once(count: int) -> list[tuple[int, int]]:
    return [(part, number) for part in range(PARTS) for number in range(count)]


async def test_each_change_is_written_once_over_restarts_of_the_server(tmp_path: Path) -> None:
    for seed in range(4):  # 10 + 20 + 30 + 40 of 120 numbers, and at most 4 more each time
        async with started(tmp_path) as coordinator, running(coordinator, Numbers(COUNT, seed)) as ingestion:
            await until(coordinator, lambda goal=10 * (seed + 1): ingestion.rows >= goal)  # type: ignore[misc]
    async with started(tmp_path) as coordinator, running(coordinator, Numbers(COUNT)):
        await until(coordinator, lambda: stored(tmp_path) == PARTS * COUNT)
        assert await numbers(coordinator) == each_once(COUNT)


@pytest.mark.crash
def test_each_change_is_written_once_although_the_server_is_killed(tmp_path: Path) -> None:
    count = 200
    command = [sys.executable, "-m", "tests.server.ingest.child", str(tmp_path), str(count)]
    for kill in range(1, KILLS + 1):
        with subprocess.Popen(command) as child:
            while child.poll() is None and stored(tmp_path) < kill * PARTS * count // (KILLS + 2):
                sleep(0.002)
            child.kill()
    assert stored(tmp_path) < PARTS * count, "it was finished before the last kill"
    subprocess.run(command, check=True, timeout=60)

    async def check() -> None:
        async with started(tmp_path) as coordinator:
            assert await numbers(coordinator) == each_once(count)

    asyncio.run(check())


def stored(directory: Path) -> int:
    """Returns the sum of the committed positions, 0 if there are none."""
    try:
        with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
            ((total,),) = connection.execute("SELECT sum(CAST(value AS INTEGER)) FROM source_state").fetchall()
            return total or 0
    except sqlite3.OperationalError:
        return 0


async def test_an_upstream_that_fails_is_opened_again_at_the_committed_position(tmp_path: Path) -> None:
    upstream = Numbers(COUNT)
    async with started(tmp_path) as coordinator, running(coordinator, upstream) as ingestion:
        for goal in range(20, PARTS * COUNT, 20):
            await until(coordinator, lambda goal=goal: ingestion.rows >= goal)  # type: ignore[misc]
            upstream.failures = 2
        await until(coordinator, lambda: ingestion.rows == PARTS * COUNT)
        assert await numbers(coordinator) == each_once(COUNT)
        assert upstream.opened > 2


async def test_the_reason_of_a_stall_is_reported_until_changes_are_read_again(tmp_path: Path) -> None:
    upstream = Numbers(COUNT)
    upstream.failures = 10**9
    async with started(tmp_path) as coordinator, running(coordinator, upstream) as ingestion:
        await until(coordinator, lambda: ingestion.status is Status.STALLED)
        assert str(ingestion.error) == "broker is not available"
        upstream.failures = 0
        await until(coordinator, lambda: ingestion.status is Status.RUNNING)
        assert ingestion.error is None


async def test_a_permanent_error_ends_the_ingestion_of_this_source(tmp_path: Path) -> None:
    class Incompatible(Numbers):
        async def open(self, state: source_state.State) -> None:
            await super().open(state)
            raise PgError(SqlState.DATATYPE_MISMATCH, "the topic has another key")

    async with started(tmp_path) as coordinator:
        ingestion = Ingestion(TABLE.id, Incompatible(COUNT), coordinator)
        await ingestion.run()
        assert (ingestion.status, str(ingestion.error)) == (Status.FAILED, "the topic has another key")


async def test_a_position_is_acknowledged_upstream_only_when_it_is_on_disk(tmp_path: Path) -> None:
    class Checked(Numbers):
        async def committed(self, state: source_state.State) -> None:
            found = source_state.load(coordinator.store, TABLE.id)
            assert all(found[key] == value for key, value in state.items())
            await super().committed(state)

    upstream = Checked(COUNT)
    async with started(tmp_path) as coordinator, running(coordinator, upstream) as ingestion:
        await until(coordinator, lambda: ingestion.rows == PARTS * COUNT or ingestion.error is not None)
        assert ingestion.error is None
    assert upstream.acknowledged == {str(part): b"%d" % COUNT for part in range(PARTS)}


async def test_ingestion_ends_when_its_source_is_dropped(tmp_path: Path) -> None:
    async with started(tmp_path) as coordinator:
        ingestion = Ingestion(TABLE.id, Numbers(10**6), coordinator, retry_s=0.001)
        task = asyncio.create_task(ingestion.run())
        await until(coordinator, lambda: ingestion.rows > 0)
        before = coordinator.state
        items = {id: item for id, item in before.items.items() if id != TABLE.id}
        await coordinator.commit(Request(catalog=(before, replace(before, items=items, version=before.version + 1))))
        await asyncio.wait_for(task, HANG_S)
        assert source_state.load(coordinator.store, TABLE.id) == {}


async def test_a_source_waits_while_dataflows_lag_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admitted = asyncio.Event()
    asked = asyncio.Event()

    async def admit(tables: object) -> None:
        assert tables == (TABLE.id,)
        asked.set()
        await admitted.wait()

    async with started(tmp_path) as coordinator:
        monkeypatch.setattr(coordinator.backpressure, "admit", admit)
        async with running(coordinator, Numbers(COUNT)) as ingestion:
            await asked.wait()
            assert ingestion.rows == 0
            admitted.set()
            await until(coordinator, lambda: ingestion.rows > 0)
