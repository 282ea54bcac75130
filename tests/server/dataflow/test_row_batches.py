"""Callers get the output rows of their own input rows, whichever other callers are computed with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.runtime import row_batches
from server.dataflow.runtime.row_batches import ROWS_MAX, RUNNING_MAX, RowBatches
from tests.polling import HANG_S


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow test must not start further statements."""
    monkeypatch.setattr(row_batches, "WAIT_S", 60.0)


class Doubling:
    """Returns twice each positive value. Waits for `may_run`, and fails for the value 13."""

    def __init__(self) -> None:
        self.may_run = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.batches: list[int] = []
        self.cancelled = 0

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        table = views["v"]
        self.batches.append(table.num_rows)
        self.begun.release()
        try:
            await self.may_run.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if 13 in table.column(0).to_pylist():
            raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")
        table = table.filter(pc.greater(table.column(0), 0))
        return pa.table([pc.multiply(table.column(0), 2), table.column(table.num_columns - 1)], names=["c0", "c1"])


def rows(*values: int) -> pa.Table:
    return pa.table([pa.array(values, pa.int64())], names=["c0"])


async def started(batches: RowBatches, *inputs: pa.Table) -> list[asyncio.Task[pa.Table]]:
    """The callers, each of which has begun before the next one."""
    tasks = []
    for table in inputs:
        tasks.append(asyncio.create_task(batches.run("sql", "v", table)))
        for _ in range(5):
            await asyncio.sleep(0)
    return tasks


async def test_waiting_callers_are_computed_together_and_get_their_own_rows() -> None:
    runner = Doubling()
    batches = RowBatches(runner)
    inputs = [rows(1), rows(2), rows(3, -1, 4), rows(-5), rows(), rows(6)]
    tasks = await started(batches, *inputs)
    assert runner.batches == [1]
    runner.may_run.set()
    found = [(await task).column(0).to_pylist() for task in tasks]
    assert found == [[2], [4], [6, 8], [], [], [12]]
    assert sum(runner.batches) == 7
    assert len(runner.batches) == 2
    assert (await batches.run("sql", "v", rows(7))).to_pydict() == {"c0": [14]}
    assert not batches._queues
    assert not batches._tasks


async def test_an_error_is_raised_for_the_caller_whose_rows_cause_it() -> None:
    runner = Doubling()
    _, good, bad, other = await started(RowBatches(runner), rows(1), rows(12), rows(13), rows(14))
    runner.may_run.set()
    assert (await good).column(0).to_pylist() == [24]
    with pytest.raises(PgError, match="division by zero"):
        await bad
    assert (await other).column(0).to_pylist() == [28]


async def test_a_statement_is_cancelled_when_nobody_waits_for_it() -> None:
    runner = Doubling()
    batches = RowBatches(runner)
    tasks = await started(batches, *map(rows, range(1, 4)))
    tasks[0].cancel()  # it runs alone
    tasks[1].cancel()  # it waits
    for _ in range(10):
        await asyncio.sleep(0)
    assert runner.cancelled == 1
    runner.may_run.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = [number for number, outcome in enumerate(done) if isinstance(outcome, asyncio.CancelledError)]
    assert cancelled == [0, 1]
    assert done[-1].column(0).to_pylist() == [6]


async def test_a_slow_statement_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batches, "WAIT_S", 0.001)
    runner = Doubling()
    batches = RowBatches(runner)
    tasks = []
    for number in range(RUNNING_MAX):
        tasks += await started(batches, rows(number))
        await asyncio.wait_for(runner.begun.acquire(), HANG_S)
    tasks += await started(batches, rows(8), rows(9))
    await asyncio.sleep(0.02)
    assert len(runner.batches) == RUNNING_MAX
    runner.may_run.set()
    assert [(await task).column(0).to_pylist() for task in tasks[-2:]] == [[16], [18]]
    assert not batches._queues


async def test_a_batch_has_a_maximum_size() -> None:
    runner = Doubling()
    large = rows(*[1] * (ROWS_MAX // 2 + 1))
    tasks = await started(RowBatches(runner), rows(1), large, large, rows(1))
    runner.may_run.set()
    assert [(await task).num_rows for task in tasks[1:]] == [large.num_rows, large.num_rows, 1]
    assert max(runner.batches) <= ROWS_MAX
