"""Runs statements with the same text over rows of different callers as one statement.

A small statement takes about a millisecond, of which its rows are the smallest part. While a statement runs, the rows
of further callers with the same text wait, and the next statement computes all of them. If it runs for longer than
WAIT_S, the next one starts, so that one caller's slow rows do not delay the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from server.spark import Runner

WAIT_S = 0.005  # from the first waiting caller to the next statement, if no statement ends before
RUNNING_MAX = 2  # statements with the same text
ROWS_MAX = 2_000  # of a batch of more than one caller


_FIRST = pa.array([0], pa.int32())
_Key = tuple[str, str, pa.Schema]


class _Request:
    """The rows of one caller, and the future of its result."""

    __slots__ = ("answer", "rows")

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.answer: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()


class _Queue:
    """The callers of one text. Nobody waits if no statement runs. `timer`: starts the next statement."""

    __slots__ = ("running", "timer", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: list[_Request] = []
        self.timer: asyncio.TimerHandle | None = None

    def next(self) -> list[_Request]:
        """Removes and returns the next requests, up to ROWS_MAX rows."""
        waiting = [request for request in self.waiting if not request.answer.done()]
        count = total = 0
        for request in waiting:
            total += request.rows.num_rows
            if count and total > ROWS_MAX:
                break
            count += 1
        self.waiting = waiting[count:]
        return waiting[:count]


class RowBatches:
    """Runs statements that compute each output row from one row of one view.

    The last column of the view and of the output is an int, by which the output rows are returned to their callers.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._queues: dict[_Key, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, sql: str, view: str, rows: pa.Table) -> pa.Table:
        """Returns the output rows for `rows`, without the last column, which `rows` do not have yet.

        Errors and cancel safety as in `Runner.run`. An error for the rows of another caller has no effect.
        """
        key = (sql, view, rows.schema)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        if queue.running:
            request = _Request(rows)
            queue.waiting.append(request)
            self._start_later(key, queue)
            return await request.answer
        queue.running += 1
        try:
            return (await self._answers(sql, view, [rows]))[0]
        finally:
            self._ended(key, queue)

    def _ended(self, key: _Key, queue: _Queue) -> None:
        """Called when a statement has ended. Starts the next one, if any callers wait."""
        queue.running -= 1
        self._start_next(key, queue)
        if not queue.running:
            del self._queues[key]

    def _start_next(self, key: _Key, queue: _Queue) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if queue.running < RUNNING_MAX and (requests := queue.next()):
            queue.running += 1
            task = asyncio.create_task(self._run_waiting(key, queue, requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if queue.waiting:
            self._start_later(key, queue)

    def _start_later(self, key: _Key, queue: _Queue) -> None:
        """Starts the next statement after WAIT_S, unless one ends before or too many run."""
        if queue.timer is None and queue.running < RUNNING_MAX:
            queue.timer = asyncio.get_running_loop().call_later(WAIT_S, self._start_next, key, queue)

    async def _run_waiting(self, key: _Key, queue: _Queue, requests: Sequence[_Request]) -> None:
        sql, view, _ = key
        try:
            await self._run_batch(sql, view, requests)
        finally:
            self._ended(key, queue)

    async def _run_batch(self, sql: str, view: str, requests: Sequence[_Request]) -> None:
        """Answers the requests. If they fail together, each is run alone, so that each gets its own error."""
        run = asyncio.ensure_future(self._answers(sql, view, [request.rows for request in requests]))

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

    async def _answers(self, sql: str, view: str, tables: Sequence[pa.Table]) -> list[pa.Table]:
        return _separated(await self._runner.run(sql, {view: _numbered(tables)}), len(tables))


def _numbered(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all callers, with the caller's number as the last column."""
    if len(tables) == 1 and tables[0].num_rows == 1:
        return tables[0].append_column(f"c{tables[0].num_columns}", _FIRST)
    rows = pa.concat_tables(tables)
    numbers = np.repeat(np.arange(len(tables), dtype=np.int32), [table.num_rows for table in tables])
    return rows.append_column(f"c{rows.num_columns}", pa.array(numbers))


def _separated(rows: pa.Table, count: int) -> list[pa.Table]:
    """The rows of each caller. Spark keeps the order of the input, because there is one partition."""
    found = rows.select(range(rows.num_columns - 1))
    if count == 1:
        return [found]
    numbers = rows.column(rows.num_columns - 1).to_numpy()
    bounds = np.searchsorted(numbers, np.arange(count + 1)).tolist()
    return [found.slice(begin, end - begin) for begin, end in itertools.pairwise(bounds)]
