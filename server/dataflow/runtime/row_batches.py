"""Runs statements with the same text over rows of different callers as one statement.

A small statement takes one or two milliseconds, of which its rows are the smallest part. While RUNNING_MAX statements
with a text run, the rows of further callers wait, and the next statement computes all of them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from server.spark import Runner

RUNNING_MAX = 2  # statements with the same text; a batch is larger if fewer run
ROWS_MAX = 2_000  # of a batch of more than one caller


class _Request:
    __slots__ = ("answer", "rows")

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.answer: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()


class RowBatches:
    """Runs statements that compute each output row from one row of one view.

    The last column of the view and of the output is an int, by which the output rows are returned to their callers.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._waiting: dict[tuple[str, str, pa.Schema], list[_Request]] = {}
        self._running: dict[tuple[str, str, pa.Schema], set[asyncio.Task[None]]] = {}

    async def run(self, sql: str, view: str, rows: pa.Table) -> pa.Table:
        """Returns the output rows for `rows`, without the last column, which `rows` do not have yet.

        Errors and cancel safety as in `Runner.run`. An error for the rows of another caller has no effect.
        """
        key = (sql, view, rows.schema)
        request = _Request(rows)
        self._waiting.setdefault(key, []).append(request)
        running = self._running.setdefault(key, set())
        if len(running) < RUNNING_MAX:
            task = asyncio.create_task(self._run_waiting(*key))
            running.add(task)
        return await request.answer

    async def _run_waiting(self, sql: str, view: str, schema: pa.Schema) -> None:
        """Runs until no request waits."""
        key = (sql, view, schema)
        try:
            while requests := self._next(key):
                await self._run_batch(sql, view, requests)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._running[key].discard(task)
            if not self._running[key]:
                del self._running[key]

    def _next(self, key: tuple[str, str, pa.Schema]) -> list[_Request]:
        """Removes and returns the next requests, up to ROWS_MAX rows."""
        waiting = [request for request in self._waiting.pop(key, ()) if not request.answer.done()]
        count = total = 0
        for request in waiting:
            total += request.rows.num_rows
            if count and total > ROWS_MAX:
                break
            count += 1
        if waiting[count:]:
            self._waiting[key] = waiting[count:]
        return waiting[:count]

    async def _run_batch(self, sql: str, view: str, requests: Sequence[_Request]) -> None:
        """Answers the requests. If they fail together, each is run alone, so that each gets its own error."""
        run = asyncio.ensure_future(self._answers(sql, view, requests))

        def cancel_if_unwanted(_: asyncio.Future[pa.Table]) -> None:
            if all(request.answer.cancelled() for request in requests):
                run.cancel()

        for request in requests:
            request.answer.add_done_callback(cancel_if_unwanted)
        try:
            await asyncio.wait([run])
        except asyncio.CancelledError:
            run.cancel()
            for request in requests:
                request.answer.cancel()
            raise
        if run.cancelled():
            for request in requests:
                request.answer.cancel()
        elif (error := run.exception()) is None:
            for request, answer in zip(requests, run.result(), strict=True):
                if not request.answer.done():
                    request.answer.set_result(answer)
        elif len(requests) == 1:
            if not requests[0].answer.done():
                requests[0].answer.set_exception(error)
        else:
            for request in requests:
                if not request.answer.done():
                    await self._run_batch(sql, view, [request])

    async def _answers(self, sql: str, view: str, requests: Sequence[_Request]) -> list[pa.Table]:
        return _separated(await self._runner.run(sql, {view: _numbered(requests)}), len(requests))


def _numbered(requests: Sequence[_Request]) -> pa.Table:
    """The rows of all requests, with the request's number as the last column."""
    rows = pa.concat_tables([request.rows for request in requests])
    numbers = np.repeat(np.arange(len(requests), dtype=np.int32), [request.rows.num_rows for request in requests])
    return rows.append_column(f"c{rows.num_columns}", pa.array(numbers))


def _separated(rows: pa.Table, count: int) -> list[pa.Table]:
    """The rows of each request. Spark keeps the order of the input, because there is one partition."""
    numbers = rows.column(rows.num_columns - 1).to_numpy()
    found = rows.select(range(rows.num_columns - 1))
    if count == 1:
        return [found]
    bounds = np.searchsorted(numbers, np.arange(count + 1)).tolist()
    return [found.slice(begin, end - begin) for begin, end in itertools.pairwise(bounds)]
