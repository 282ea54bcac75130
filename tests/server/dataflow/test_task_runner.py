"""Tasks in statements: which tasks share one, and their isolation from tasks that fail, are cancelled or take long."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError
from server.dataflow.arrangements import task_runner
from server.dataflow.arrangements.run_files import RunFiles
from server.dataflow.arrangements.task_runner import COST_PER_BRANCH, TaskRunner
from tests.server.dataflow.workers import Workers


@dataclass(frozen=True)
class Say:
    """A task that answers with its number. It fails while the file `missing` does not exist."""

    number: int
    cost: int = 1
    missing: Path | None = None
    files: RunFiles = ()

    def answer(self) -> pa.Table:
        if self.missing is not None and not self.missing.exists():
            raise FileNotFoundError(errno.ENOENT, str(self.missing))
        return pa.table({"n": [self.number]})


class Watched(Workers):
    """Records the task numbers and the number of branches of each statement. Answers in reverse order."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[int], int]] = []
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.waits: asyncio.Event | None = None
        self.cancelled = 0

    async def run(self, sql: str, views: Any, **named: Any) -> pa.Table:
        tasks = views["tasks"]
        found = await super().run(sql, views, **named)
        branches = len(set(tasks["branch"].to_pylist()))
        try:
            self.asked.append((tasks["number"].to_pylist(), branches))
            self.begun.put_nowait(None)
            if self.waits is not None:
                await self.waits.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return found.take(list(reversed(range(len(found)))))


@pytest.fixture
def workers() -> Watched:
    return Watched()


@pytest.fixture
def runner(workers: Watched, tmp_path: Path) -> Iterator[TaskRunner]:
    with mock.patch.multiple(task_runner, RETRY_S=0.5, RETRY_PAUSES_S=(0.01,)):
        yield TaskRunner(workers, tmp_path)  # type: ignore[arg-type]


async def said(runner: TaskRunner, *tasks: Say, background: bool = False) -> list[int]:
    return [answer["n"][0].as_py() for answer in await runner.run(tasks, background=background)]


async def test_concurrent_requests_share_a_statement(runner: TaskRunner, workers: Watched) -> None:
    asks = [said(runner, *map(Say, range(10 * n, 10 * n + n + 1))) for n in range(4)]
    assert await asyncio.gather(*asks) == [[0], [10, 11], [20, 21, 22], [30, 31, 32, 33]]
    assert workers.asked == [(list(range(10)), 1)]
    assert await said(runner, Say(5)) == [5]
    assert len(workers.asked) == 2


async def test_large_and_background_requests_have_their_own_statements(runner: TaskRunner, workers: Watched) -> None:
    large = [Say(n, COST_PER_BRANCH) for n in range(3)]
    found = await asyncio.gather(said(runner, Say(7)), said(runner, *large), said(runner, Say(8), background=True))
    assert found == [[7], [0, 1, 2], [8]]
    assert sorted(workers.asked) == [([0], 1), ([0], 1), ([0, 1, 2], 3)]


@pytest.mark.parametrize(
    ("costs", "branches"),
    [
        ([0, 0], 1),
        ([1] * 100, 1),
        ([COST_PER_BRANCH * 50], 1),
        ([COST_PER_BRANCH * 50, 1], 1),
        ([1, COST_PER_BRANCH * 50], 2),
        ([COST_PER_BRANCH] * 7, 7),
        ([COST_PER_BRANCH * 9] * 7, 7),
        ([COST_PER_BRANCH // 2] * 10, 5),
        ([COST_PER_BRANCH] * 1000, task_runner.BRANCHES_MAX),
    ],
)
async def test_expensive_tasks_are_distributed_over_branches(
    runner: TaskRunner, workers: Watched, costs: list[int], branches: int
) -> None:
    tasks = [Say(number, cost) for number, cost in enumerate(costs)]
    assert await said(runner, *tasks) == list(range(len(tasks)))
    assert workers.asked[-1][1] == branches


async def test_no_request_waits_for_the_missing_file_of_another(
    runner: TaskRunner, workers: Watched, tmp_path: Path
) -> None:
    late = asyncio.create_task(said(runner, Say(1), Say(2, missing=tmp_path / "late"), Say(3)))
    assert await said(runner, Say(4)) == [4]
    assert not late.done()
    (tmp_path / "late").touch()
    assert await late == [1, 2, 3]
    assert workers.asked[0] == ([0, 1, 2, 3], 1)
    assert workers.asked[1:] == [([0], 1)] * (len(workers.asked) - 1)  # answered tasks are not repeated
    with pytest.raises(PgError, match="cannot use the files"):
        await said(runner, Say(1), Say(2, missing=tmp_path / "never"))


async def test_a_failing_request_fails_alone(runner: TaskRunner, workers: Watched) -> None:
    deadly = mock.Mock(side_effect=[PgError("XX000", "a worker ended"), None, PgError("XX000", "again"), None])
    workers.fault = deadly
    assert await asyncio.gather(said(runner, Say(1)), said(runner, Say(2))) == [[1], [2]]
    assert deadly.call_count == 4  # shared, the first alone, the second alone, and its retry
    workers.fault = mock.Mock(side_effect=PgError("57014", "canceled"))
    both = await asyncio.gather(said(runner, Say(1)), said(runner, Say(2)), return_exceptions=True)
    assert [str(error) for error in both] == ["canceled", "canceled"]
    assert workers.fault.call_count == 1


async def test_a_statement_is_cancelled_when_all_its_requests_are(runner: TaskRunner, workers: Watched) -> None:
    workers.waits = asyncio.Event()
    one, other = (asyncio.create_task(said(runner, Say(n))) for n in (1, 2))
    await workers.begun.get()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    workers.waits.set()
    assert await other == [2]
    assert workers.cancelled == 0
    workers.waits = asyncio.Event()
    both = [asyncio.create_task(said(runner, Say(n))) for n in (1, 2)]
    await workers.begun.get()
    for task in both:
        task.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    await asyncio.sleep(0)
    assert workers.cancelled == 1


async def test_a_request_after_a_cancelled_one_is_answered(runner: TaskRunner, workers: Watched) -> None:
    """The earlier request was cancelled before its statement began."""
    gone = asyncio.create_task(said(runner, Say(1)))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert await said(runner, Say(2)) == [2]
    assert workers.asked == [([0], 1)]
