"""A subscriber that adds up what it is sent, and a check of the sum against PostgreSQL's answer.

It holds the stream to its promises on the way: times do not go back, nothing comes at a time that progress has passed,
no row's count falls below zero at a time that is complete.
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
    """`query` subscribed to as COPY text. `async with` it."""

    def __init__(self, dsn: str, query: str) -> None:
        self.query = query
        self.rows: Counter[Row] = Counter()  # at every time before `progress`
        self.progress = 0
        self.updates = 0  # data rows received
        self.times: set[int] = set()  # of the data rows since `forget_times`
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
            await self._complete(END_OF_TIME)  # the query reads nothing: all its rows are of that time
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
        # The first progress stands before the snapshot; at the end of time the rows are to come, and then the end.
        if self._has_begun and time < END_OF_TIME - 1:
            await self._complete(time)
        self._has_begun = True

    async def _complete(self, time: int) -> None:
        """All times before `time` are."""
        async with self._moved:  # rows and progress move together
            self.rows.update(self._pending)
            self._pending.clear()
            wrong = {r: n for r, n in self.rows.items() if n < 0}
            assert not wrong, f"counts below zero at {time - 1}: {wrong}"
            self.rows = +self.rows
            self.progress = time
            self._moved.notify_all()

    async def at(self, time: int, timeout_s: float = 60) -> Counter[Row]:
        """The rows at `time`, once it is final. What ended the stream is raised."""
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
    """What differs between PostgreSQL's rows and those added up, as multisets."""
    ours = Answer(right.columns, tuple(rows.elements()))
    return difference("SELECT 1", right, ours)
