"""Work in threads: what is expensive does not delay what is not, whatever waits before it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from server.runtime import offload
from server.runtime.offload import in_background_thread, in_stoppable_thread
from server.sql.grammar.checkpoint import checkpoint
from tests.polling import HANG_S

FIRST_S = 0.01
Run = Callable[[Callable[[], float]], Coroutine[Any, Any, float]]


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "FIRST_S", FIRST_S)
    monkeypatch.setattr(offload, "monotonic", time.thread_time)  # other processes do not stop the work


class Work:
    """Work of a number of seconds of processor time, and until an event is set."""

    def __init__(self, seconds: float, ended: list[float], until: threading.Event | None = None) -> None:
        self.seconds, self.begun, self._ended, self._until = seconds, 0, ended, until

    def __call__(self) -> float:
        self.begun += 1
        end = time.thread_time() + self.seconds
        while time.thread_time() < end or not (self._until is None or self._until.is_set()):
            checkpoint()
        self._ended.append(self.seconds)
        return self.seconds


async def test_short_work_does_not_wait_for_long_work() -> None:
    ended: list[float] = []
    works = [Work(seconds, ended) for seconds in (0.5, 0.2, *[0.001] * 20, 0.1)]
    assert await asyncio.gather(*map(in_background_thread, works)) == [work.seconds for work in works]
    assert ended == sorted(ended)
    assert works[0].begun <= 7  # 0.01 + 0.02 + ... s


@pytest.mark.parametrize("run", [in_background_thread, in_stoppable_thread])
async def test_long_work_alone_begins_once(run: Run) -> None:
    work = Work(0.1, [])
    assert await run(work) == 0.1
    assert work.begun == 1


@pytest.mark.parametrize("run", [in_background_thread, in_stoppable_thread])
@pytest.mark.parametrize("count", [1, 2, 8])
async def test_errors_and_cancellations(run: Run, count: int) -> None:
    def fails() -> float:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run(fails)
    ended: list[float] = []
    tasks = [asyncio.create_task(run(Work(60, ended))) for _ in range(count)]
    await asyncio.sleep(5 * FIRST_S)
    for task in tasks:
        task.cancel()
    assert [type(found) for found in await asyncio.gather(*tasks, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * count
    works = [Work(0.001, ended) for _ in range(count)]
    assert await asyncio.gather(*map(run, works)) == [0.001] * count
    assert ended == [0.001] * count


async def test_statements_that_take_minutes_do_not_delay_those_that_take_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offload, "EXPENSIVE_S", 5 * FIRST_S)
    ended: list[float] = []
    others_have_ended = threading.Event()
    endless = [Work(20 * FIRST_S, ended, others_have_ended) for _ in range(4)]
    tasks = [asyncio.create_task(in_stoppable_thread(work)) for work in endless]
    try:
        async with asyncio.timeout(HANG_S):
            await asyncio.sleep(5 * FIRST_S)
            await asyncio.gather(*(in_stoppable_thread(Work(3 * FIRST_S, ended)) for _ in range(6)))
    finally:
        others_have_ended.set()
        await asyncio.gather(*tasks)
    assert ended == [3 * FIRST_S] * 6 + [20 * FIRST_S] * 4


async def test_expensive_statements_do_not_delay_others() -> None:
    ended: list[float] = []
    others_have_ended = threading.Event()
    expensive = [Work(2 * FIRST_S, ended, others_have_ended) for _ in range(4)]
    tasks = [asyncio.create_task(in_stoppable_thread(work)) for work in expensive]
    try:
        async with asyncio.timeout(HANG_S):
            await asyncio.sleep(FIRST_S)
            for _ in range(10):
                assert await in_stoppable_thread(Work(0.001, ended)) == 0.001
    finally:
        others_have_ended.set()
        await asyncio.gather(*tasks)
    assert max(work.begun for work in expensive) == 2
