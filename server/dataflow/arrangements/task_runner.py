"""Runs tasks in Spark's Python workers by SQL statements. Small concurrent requests share a statement.

A statement costs Spark some tens of milliseconds, and most tasks take less than one. All small requests within JOIN_S
therefore become one statement: those of both sides of a join, of several operators of a step, of several dataflows.
Expensive tasks are distributed over the branches of a UNION ALL, each of which Spark computes in a separate task.

Large requests and retries have a statement of their own, so that no other request waits for them or fails with them.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.arrangements.run_files import FUNCTION, Task, answered
from server.spark import Engine

JOIN_S = 0.001
COST_PER_BRANCH = 8_192  # see `Task.cost`; in a shared statement it can be exceeded
BRANCHES_MAX = 16
WORKERS_MAX = 4  # failures of the workers before the error is raised, as in spark.task.maxFailures
RETRY_S = 10.0  # a new file may become visible late on another machine
RETRY_PAUSES_S = (0.05, 0.2, 0.5, 1.0)
PARSED_AT_ONCE = 1 << 20  # bytes of answers; more are parsed in a thread

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)

_log = structlog.get_logger()


Answer: TypeAlias = pa.Table | OSError


class TaskRunner:
    """Runs tasks for one event loop."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        """`directory`: where the files are, for error messages."""
        self._engine = engine
        self._directory = directory
        self._next: _Shared | None = None  # the shared statement that has not started yet

    async def run(self, tasks: Sequence[Task], *, background: bool = False) -> list[pa.Table]:
        """The answers of the tasks, in their order.

        Tasks whose files cannot be read are retried for RETRY_S. If a worker fails, its statement is retried, up to
        WORKERS_MAX failures: Spark itself retries on another worker in a cluster, but not in local mode. PgError of the
        engine; 58030 if an executor still cannot read a file; OSError if a disk is full.
        """
        until = time.monotonic() + RETRY_S
        pauses = itertools.chain(RETRY_PAUSES_S, itertools.repeat(RETRY_PAUSES_S[-1]))
        failures = 0
        found: dict[int, pa.Table] = {}
        shared = not background and sum(task.cost for task in tasks) <= COST_PER_BRANCH
        while left := [number for number in range(len(tasks)) if number not in found]:
            asked = [tasks[number] for number in left]
            try:
                answers = await (self._shared(asked) if shared else self._answers(asked, background))
                found |= {n: answer for n, answer in zip(left, answers, strict=True) if isinstance(answer, pa.Table)}
                self._check([answer for answer in answers if isinstance(answer, OSError)], until)
            except PgError as error:
                failures += 1
                if error.sqlstate != SqlState.INTERNAL_ERROR or failures == WORKERS_MAX:
                    raise
                _log.warning("arrangement task failed", reason=error.message)
            if len(found) < len(tasks):
                shared = False
                await asyncio.sleep(next(pauses))
        return [found[number] for number in range(len(tasks))]

    def _check(self, errors: Sequence[OSError], until: float) -> None:
        """Raises errors for which a retry is pointless, or any error after `until`."""
        for error in errors:
            if error.errno in _FULL:
                raise error
            if error.errno in _REFUSED or time.monotonic() > until:
                raise PgError(
                    SqlState.IO_ERROR,
                    "Spark's executors cannot use the files of an arrangement",
                    detail=error.strerror,
                    hint=f"Every executor must reach {self._directory} under this name; see docs/cluster.md.",
                ) from error
            _log.warning("arrangement file not read", reason=str(error))

    async def _shared(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        if self._next is None:
            self._next = _Shared()
            self._next.statement = asyncio.create_task(self._begin(self._next), name="arrangement tasks")
        shared = self._next
        first = len(shared.tasks)
        shared.tasks += tasks
        shared.waiting += 1
        try:
            answers = await asyncio.shield(shared.statement)
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                shared.statement.cancel()
                if self._next is shared:
                    self._next = None
        return answers[first : first + len(tasks)]

    async def _begin(self, shared: _Shared) -> list[Answer]:
        await asyncio.sleep(JOIN_S)
        self._next = None
        return await self._answers(shared.tasks, background=False)

    async def _answers(self, tasks: Sequence[Task], background: bool) -> list[Answer]:
        branches = _branches(tasks)
        view = pa.table(
            {
                "branch": pa.array(branches, pa.int32()),
                "number": pa.array(range(len(tasks)), pa.int32()),
                "task": pa.array([pickle.dumps(task) for task in tasks], pa.binary()),
            }
        )
        statement = _statement(int(branches.max()) + 1)
        found = await self._engine.run(statement, {"tasks": view}, patient=True, background=background)
        if found.nbytes > PARSED_AT_ONCE:
            return await asyncio.to_thread(_parsed, found)
        return _parsed(found)


class _Shared:
    """A statement for several requests. It is cancelled when all of them are."""

    statement: asyncio.Task[list[Answer]]

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.waiting = 0


def _branches(tasks: Sequence[Task]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The branch of each task. Branches have about equal cost and at least one task each."""
    behind = np.cumsum([task.cost for task in tasks], dtype=np.int64)
    count = min(BRANCHES_MAX, -(-int(behind[-1]) // COST_PER_BRANCH))
    ends = -(-behind * count // max(1, int(behind[-1])))
    return np.unique(ends, return_inverse=True)[1].astype(np.int32)


def _statement(branches: int) -> str:
    return " UNION ALL ".join(
        f"SELECT number, {FUNCTION}(task) AS answer FROM tasks WHERE branch = {branch}" for branch in range(branches)
    )


def _parsed(found: pa.Table) -> list[Answer]:
    """The answers in the order of the tasks."""
    answers = found.sort_by("number")["answer"]
    return [_answer(answer.as_py()) for answer in answers]


def _answer(answer: bytes) -> Answer:
    try:
        return answered(answer)
    except OSError as error:
        return error
