"""The work that a session waits for: a task, or a commit that needs no task; and the reason if it is cancelled.

A task costs about 30 microseconds, which is as much as the rest of a small write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple

from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.committer import Commit
from server.runtime.errors import to_pg_error

Work = Coroutine[Any, Any, None]


class PendingCommit(NamedTuple):
    """A commit that needs no task (`Context.begin_commit`). `answer`: to its statement, sent when it is done."""

    commit: asyncio.Future[Commit]
    answer: bytes


class StatementTask:
    """A session's current task, or the commit for which it waits instead. There is at most one at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._reason: PgError | None = None
        self._timeout: asyncio.Timeout | None = None
        self.is_running = False
        self.has_begun = False
        """Whether it has made its first step. A task that is cancelled before that never runs its cleanup."""
        self._commit: asyncio.Future[Commit] | None = None
        self._ended: Callable[[BaseException | None], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, work: Work) -> None:
        """Creates the task. `work` calls `end` when it is done."""
        self._reason, self.is_running, self.has_begun = None, True, False
        self._task = asyncio.create_task(work)

    def wait(
        self, commit: asyncio.Future[Commit], seconds: float | None, ended: Callable[[BaseException | None], None]
    ) -> None:
        """Waits for a commit without a task. Calls `ended` with None when it is done.

        If it is cancelled before, `ended` gets the error for the client, or CancelledError if the connection is lost.
        `seconds`: the timeout, or None. The commit is not cancelled.
        """
        self.is_running = self.has_begun = True
        self._commit, self._ended = commit, ended
        commit.add_done_callback(self._commit_done)
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def _commit_done(self, commit: asyncio.Future[Commit]) -> None:
        if commit is self._commit:  # else it was cancelled in the same iteration of the loop
            self._end_wait(None)

    def _time_out(self) -> None:
        self._end_wait(_timed_out())

    def _end_wait(self, reason: BaseException | None) -> None:
        ended = self._ended
        assert ended is not None
        if self._timer is not None:
            self._timer.cancel()
        self._commit = self._ended = self._timer = None
        self.is_running = False
        ended(reason)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Returns the context in which the task does its work. `seconds` None: without a timeout."""
        self.has_begun = True
        self._timeout = None if seconds is None else asyncio.timeout(seconds)
        return self._timeout or nullcontext()

    def cancel(self, reason: PgError | None) -> None:
        """Cancels the task. `reason` is the error for the client, None if the connection is lost."""
        if self._commit is not None:
            self._end_wait(reason or asyncio.CancelledError())
            return
        assert self._task is not None
        if reason is not None:
            self._reason = reason
        self._task.cancel()

    def end(self) -> bool:
        """Called by the task at its end. Returns whether it was cancelled because the connection is lost."""
        assert self._task is not None
        task, self._task, self.is_running = self._task, None, False
        return task.cancelling() > 0

    def error_of(self, exception: BaseException) -> PgError:
        """Returns the error to report for an exception. Re-raises CancelledError if the connection is lost."""
        match exception:
            case asyncio.CancelledError():
                assert self._task is not None
                reason, self._reason = self._reason, None
                if reason is not None:
                    self._task.uncancel()
                    return reason
                if self._timeout is not None and self._timeout.expired():
                    return _timed_out()
                raise exception
            case Exception():
                return to_pg_error(exception)
            case _:
                raise exception


def _timed_out() -> PgError:
    return PgError(SqlState.QUERY_CANCELED, "canceling statement due to statement timeout")
