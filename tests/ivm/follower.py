"""A subscriber that adds up the updates that it receives, and a comparison of the sum with PostgreSQL's answer.

It also checks the stream: timestamps do not decrease, no update has a time before the last progress, and no row's
multiplicity is negative at a complete time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

import psycopg
from psycopg.pq import ExecStatus

from tests.sql.answers import Answer
from tests.sql.compare import difference
from tests.sql.oracle import answer_of

Row = tuple[str | None, ...]
END_OF_TIME = 1 << 64


class Follower:
    """A subscription to `query`, as COPY text. An asynchronous context manager."""

    def __init__(self, dsn: str, query: str) -> None:
        self.query = query
        self.rows: Counter[Row] = Counter()  # at the time `progress - 1`
        self.progress = 0
        self.updates = 0  # data rows received
        self.times: set[int] = set()  # of the data rows since the last `times.clear()`
        self.error: Exception | None = None
        self._dsn = dsn
        self._pending: Counter[Row] = Counter()
        self._moved = asyncio.Condition()
        self._has_begun = False

    async def __aenter__(self) -> Self:
        self._connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._connection.close()

    async def _follow(self) -> None:
        try:
            async with self._connection.cursor() as cursor:
                async with cursor.copy(f"COPY (SUBSCRIBE ({self.query}) WITH (PROGRESS)) TO STDOUT") as copy:  # type: ignore[call-overload]
                    async for row in copy.rows():
                        await self._take(row)
            await self._complete(END_OF_TIME)  # the query reads no relation, so all rows have one time
        except Exception as error:
            async with self._moved:
                self.error = error
                self._moved.notify_all()

    async def _take(self, row: tuple[str | None, ...]) -> None:
        time = int(row[0] or "")
        assert time >= self.progress, f"time {time} after progress {self.progress}"
        if row[1] == "f":
            self._pending[row[3:]] += int(row[2] or "")
            self.updates += 1
            self.times.add(time)
            return
        # The first progress precedes the snapshot. After the one at the end of time, rows may follow until the stream
        # ends.
        if self._has_begun and time < END_OF_TIME - 1:
            await self._complete(time)
        self._has_begun = True

    async def _complete(self, time: int) -> None:
        """Makes the times before `time` final."""
        async with self._moved:  # rows and progress change together
            self.rows.update(self._pending)
            self._pending.clear()
            wrong = {r: n for r, n in self.rows.items() if n < 0}
            assert not wrong, f"counts below zero at {time - 1}: {wrong}"
            self.rows = +self.rows
            self.progress = time
            self._moved.notify_all()

    async def at(self, time: int, timeout_s: float = 60) -> Counter[Row]:
        """The rows at `time`, once it is final. Raises the error that ended the stream."""
        async with asyncio.timeout(timeout_s), self._moved:
            await self._moved.wait_for(lambda: self.progress > time or self.error is not None)
        if self.error is not None:
            raise self.error
        return self.rows


def expected(connection: psycopg.Connection, query: str) -> Answer:
    """PostgreSQL's answer."""
    result = connection.pgconn.exec_params(query.encode(), [])
    assert result.status in (ExecStatus.TUPLES_OK, ExecStatus.FATAL_ERROR), query
    return answer_of(result)


def fault(right: Answer, rows: Counter[Row]) -> str | None:
    """The difference between PostgreSQL's rows and the accumulated rows, as multisets. None if there is none."""
    ours = Answer(right.columns, tuple(rows.elements()))
    return difference("SELECT 1", right, ours)
