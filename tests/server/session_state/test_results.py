"""Rows of a subscription, taken by count and timeout as FETCH does: each row is returned exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT4
from server.dataflow.stream.envelope import DiffEnvelope
from server.dataflow.stream.feed import Entry
from server.session_state.results import SubscriptionRows
from server.sql.plan import Field

RELATION = (Field("a", INT4, True),)


class Stream:
    """A subscription whose messages a test adds. `error` is raised after them."""

    def __init__(self) -> None:
        self.finished = False
        self.error: PgError | None = None
        self.interrupt = None
        self._came = asyncio.Event()
        self._messages: list[Entry] = []

    def come(self, time: int, *values: int) -> None:
        rows = pa.table([pa.array(values, pa.int32())], schema=updates.rows_schema([pa.int32()]))
        self._messages.append(Entry(Timestamp(time), updates.with_diff(rows, 1)))
        self._came.set()

    def fail(self, message: str) -> None:
        self.error = PgError(SqlState.DIVISION_BY_ZERO, message)
        self._came.set()

    def ready(self, *_: object) -> list[Entry]:
        messages, self._messages = self._messages, []
        if not messages and self.error is not None:
            raise self.error
        return messages

    async def next(self, *_: object) -> list[Entry]:
        while not (messages := self.ready()):
            self._came.clear()
            await self._came.wait()
        return messages

    def sent(self, _: object) -> None: ...

    def close(self) -> None:
        self.finished = True


def rows_of(stream: Stream) -> SubscriptionRows:
    return SubscriptionRows(stream, DiffEnvelope(RELATION, progress=False))  # type: ignore[arg-type]


def values(table: pa.Table) -> list[int]:
    return table.column(2).to_pylist()  # type: ignore[no-any-return]


async def begun(work: Coroutine[Any, Any, pa.Table]) -> asyncio.Task[pa.Table]:
    """Starts the work as a task, and returns when it is blocked or done."""
    task = asyncio.create_task(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("limit", [None, 10])
def test_a_cancelled_fetch_loses_no_row(limit: int | None) -> None:
    async def run() -> None:
        stream = Stream()
        rows = rows_of(stream)
        stream.come(1, 1, 2)
        task = await begun(rows.take_ready(limit, 60.0))
        stream.come(2, 3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream.come(3, 4)
        assert values(await rows.take(None)) == [1, 2, 3, 4]

    asyncio.run(run())


def test_a_fetch_cancelled_when_its_first_row_arrives_loses_no_row() -> None:
    async def run() -> None:
        stream = Stream()
        rows = rows_of(stream)
        task = await begun(rows.take(5))
        stream.come(1, 1)
        task.cancel()  # the row is available, but the task has not run yet
        with pytest.raises(asyncio.CancelledError):
            await task
        assert values(await rows.take(5)) == [1]

    asyncio.run(run())


def test_remaining_rows_precede_new_rows() -> None:
    async def run() -> None:
        stream = Stream()
        rows = rows_of(stream)
        stream.come(1, 1, 2, 3)
        assert values(await rows.take(1)) == [1]
        stream.come(2, 4)
        assert values(await rows.take_ready(2, 0.0)) == [2, 3]
        stream.come(2, 5)
        assert values(await rows.take_ready(None, 0.0)) == [4, 5]
        assert values(await rows.take_ready(None, 0.0)) == []
        assert values(await rows.take(0)) == []

    asyncio.run(run())


def test_each_call_after_the_last_row_raises_the_error() -> None:
    async def run() -> None:
        stream = Stream()
        rows = rows_of(stream)
        stream.come(1, 1, 2)
        assert values(await rows.take(1)) == [1]
        stream.fail("no more")
        assert values(await rows.take(5)) == [2]
        for _ in range(2):
            with pytest.raises(PgError, match="no more"):
                await rows.take(5)
            with pytest.raises(PgError, match="no more"):
                await rows.take_ready(5, 0.0)

    asyncio.run(run())


def test_rows_within_the_timeout_precede_an_error() -> None:
    async def run() -> None:
        stream = Stream()
        rows = rows_of(stream)
        task = await begun(rows.take_ready(None, 60.0))
        stream.come(1, 1)
        for _ in range(10):
            await asyncio.sleep(0)
        stream.fail("no more")
        assert values(await task) == [1]
        with pytest.raises(PgError, match="no more"):
            await rows.take_ready(None, 60.0)

    asyncio.run(run())
