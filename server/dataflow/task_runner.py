"""Tasks for Spark's Python workers, as statements. Who asks for little at the same time shares one.

Whatever it does, a statement costs Spark some tens of milliseconds; most tasks take less than one. So those that come
within JOIN_S are one statement, whoever asks: both sides of a join, operators of a tick, dataflows that see a commit.
Tasks with much to do are spread over arms of a UNION ALL; Spark computes each arm in a task of its own.

Who asks for much has a statement alone, and so has who must try again: nobody waits for it, or fails with it.
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
from server.dataflow.run_files import FUNCTION, Task, answered
from server.spark import Engine

JOIN_S = 0.001
EFFORT_AN_ARM = 8_192  # see `Task.effort`; a statement that is shared may have some more
ARMS_MAX = 16
WORKERS_MAX = 4  # that may fail at a task, as spark.task.maxFailures has it
RETRY_S = 10.0  # a file may be seen late on another machine
RETRY_PAUSES_S = (0.05, 0.2, 0.5, 1.0)
PARSED_AT_ONCE = 1 << 20  # bytes of answers; more are for a thread

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)

_log = structlog.get_logger()


Answer: TypeAlias = pa.Table | OSError


class TaskRunner:
    """For one event loop."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        """`directory`: where the files are, for who is told that they cannot be used."""
        self._engine = engine
        self._directory = directory
        self._next: _Shared | None = None  # that has not begun

    async def run(self, tasks: Sequence[Task], *, background: bool = False) -> list[pa.Table]:
        """What the tasks answer, in their order. Those whose files cannot be read are tried again for a while; those
        that a worker fails at, a few times: a cluster's Spark gives them to another one, a local one to nobody.

        PgError of the engine; 58030 when an executor still cannot read a file, OSError if it has no room for one.
        """
        until = time.monotonic() + RETRY_S
        pauses = itertools.chain(RETRY_PAUSES_S, itertools.repeat(RETRY_PAUSES_S[-1]))
        failures = 0
        found: dict[int, pa.Table] = {}
        shared = not background and sum(task.effort for task in tasks) <= EFFORT_AN_ARM
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
        """Raises what is not worth another try."""
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
        arms = _arms(tasks)
        view = pa.table(
            {
                "arm": pa.array(arms, pa.int32()),
                "number": pa.array(range(len(tasks)), pa.int32()),
                "task": pa.array([pickle.dumps(task) for task in tasks], pa.binary()),
            }
        )
        statement = _statement(int(arms.max()) + 1)
        found = await self._engine.run(statement, {"tasks": view}, patient=True, background=background)
        if found.nbytes > PARSED_AT_ONCE:
            return await asyncio.to_thread(_parsed, found)
        return _parsed(found)


class _Shared:
    """A statement of several who ask. Without any of them left it is cancelled."""

    statement: asyncio.Task[list[Answer]]

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.waiting = 0


def _arms(tasks: Sequence[Task]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Of each task the arm that does it: they have about as much to do, each arm at least one task."""
    behind = np.cumsum([task.effort for task in tasks], dtype=np.int64)
    count = min(ARMS_MAX, -(-int(behind[-1]) // EFFORT_AN_ARM))
    ends = -(-behind * count // max(1, int(behind[-1])))
    return np.unique(ends, return_inverse=True)[1].astype(np.int32)


def _statement(arms: int) -> str:
    return " UNION ALL ".join(
        f"SELECT number, {FUNCTION}(task) AS answer FROM tasks WHERE arm = {arm}" for arm in range(arms)
    )


def _parsed(found: pa.Table) -> list[Answer]:
    """In the order of the tasks."""
    answers = found.sort_by("number")["answer"]
    return [_answer(answer.as_py()) for answer in answers]


def _answer(answer: bytes) -> Answer:
    try:
        return answered(answer)
    except OSError as error:
        return error
