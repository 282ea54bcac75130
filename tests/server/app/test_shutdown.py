"""Shutdown ends all tasks, also those of dataflows that run, fail or are cancelled."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from server.runtime import shutdown
from server.runtime.threads import to_the_end
from tests.fix_server import ServerProcess, ServerThread
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine

ENDS_S = 8.0  # the longest shutdown; it is more than TASKS_END_S

JOINED = "SELECT a.k FROM (SELECT k + 1 AS k FROM t) a JOIN (SELECT k * 2 AS k FROM u) b ON a.k = b.k"


class HalfFailingEngine(PassingEngine):
    """One statement fails once the other has begun, which is then cancelled and ends when `leaves` is set."""

    def __init__(self) -> None:
        self._has_begun = asyncio.Event()
        self.is_leaving = asyncio.Event()
        self.leaves = asyncio.Event()

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        if " * 2" in sql:
            await self._has_begun.wait()
            raise TypeError("a bug of the engine")
        self._has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_leaving.set()
            await self.leaves.wait()
            raise
        raise AssertionError


class RandomEngine(PassingEngine):
    """An engine that takes a random time and fails most statements, some of them when they are cancelled."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        choice = self._random.random()
        try:
            await asyncio.sleep(self._random.choice((0, 0, 0.001, 0.01)))
        except asyncio.CancelledError:
            await asyncio.sleep(self._random.choice((0, 0.001, 0.01)))
            if choice < 0.5:
                raise TypeError("a bug of the engine, when it is cancelled") from None
            raise
        if choice < 0.8:
            raise TypeError("a bug of the engine")
        return await super().run(sql, views, patient=patient, background=background)


def closed_in(server: ServerThread, caplog: list[Any]) -> None:
    """Stops the server. AssertionError if that takes too long or a task did not end."""
    begun = server._loop.time()
    server.stop()
    assert not server._thread.is_alive()
    assert server._loop.time() - begun < ENDS_S
    assert not caplog


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects the descriptions of tasks that did not end."""
    found: list[Any] = []
    described = shutdown.descriptions

    def noted(tasks: Any) -> list[str]:
        found.extend(names := described(tasks))
        return names

    monkeypatch.setattr(shutdown, "descriptions", noted)
    return found


def test_a_failing_step_can_be_cancelled(tmp_path: Path, left: list[Any]) -> None:
    """The cancellation is not handled as a failure, after which the dataflow would wait for the next change."""
    engine = HalfFailingEngine()
    server = ServerThread(tmp_path, engine)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("CREATE TABLE u (k int)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("INSERT INTO u VALUES (1)")
        connection.execute(f"CREATE MATERIALIZED VIEW m AS {JOINED}".encode())
        server.call(engine.is_leaving.wait())
    server._loop.call_soon_threadsafe(server._loop.call_later, 0.5, engine.leaves.set)
    closed_in(server, left)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_server_with_failing_views_shuts_down(tmp_path: Path, seed: int, left: list[Any]) -> None:
    server = ServerThread(tmp_path, RandomEngine(seed), interval_s=0.01)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("CREATE TABLE u (k int)")
        for number in range(6):
            connection.execute(f"CREATE MATERIALIZED VIEW m{number} AS {JOINED} AND a.k > {number}".encode())
        connection.execute(f"CREATE VIEW v AS {JOINED}".encode())
        connection.execute("CREATE INDEX i ON v (k)")
        for number in range(10):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
            connection.execute("INSERT INTO u VALUES (%s)", (number,))
    closed_in(server, left)


async def test_an_error_of_finished_work_does_not_undo_the_cancellation() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await goes_on.wait()
        raise OSError("no room")

    owner = asyncio.create_task(to_the_end(work()))
    await begun.wait()
    owner.cancel()
    asyncio.get_running_loop().call_soon(goes_on.set)
    with pytest.raises(asyncio.CancelledError):
        await owner


async def test_a_task_that_does_not_end_is_reported_and_abandoned(left: list[Any]) -> None:
    async def stubborn() -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    tasks = {task := asyncio.create_task(stubborn(), name="stubborn")}
    task.add_done_callback(tasks.discard)
    await asyncio.sleep(0)
    await shutdown.cancel_all(tasks, 0.05)
    assert len(left) == 1
    assert left[0].startswith("stubborn at ")
    await shutdown.cancel_all(tasks, 5)
    assert task.done()


@pytest.mark.slow
def test_a_stuck_process_exits(tmp_path: Path) -> None:
    """It logs the tasks and threads for which it waited."""
    server = ServerProcess(tmp_path, module="tests.server.app.stuck_server")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(HANG_S) == 1, "it ended by itself"
    event = server.await_event("shutdown took too long")
    assert any(task.startswith("stuck task at ") for task in event["tasks"])
    assert any(thread.startswith("stuck thread at ") for thread in event["threads"])
    server._log.close()
