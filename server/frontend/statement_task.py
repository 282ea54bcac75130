"""The task in which a session does what cannot be done at once, and the reason why it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from server.runtime.errors import to_pg_error

Work = Coroutine[Any, Any, None]


class StatementTask:
    """A session's current task. There is at most one at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._reason: PgError | None = None
        self._timeout: asyncio.Timeout | None = None
        self.is_running = False
        self.has_begun = False
        """Whether it has made its first step. A task that is cancelled before that never runs its cleanup."""

    def start(self, work: Work) -> None:
        """Creates the task. `work` calls `end` when it is done."""
        self._reason, self.is_running, self.has_begun = None, True, False
        self._task = asyncio.create_task(work)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Returns the context in which the task does its work. `seconds` None: without a timeout."""
        self.has_begun = True
        self._timeout = None if seconds is None else asyncio.timeout(seconds)
        return self._timeout or nullcontext()

    def cancel(self, reason: PgError | None) -> None:
        """Cancels the task. `reason` is the error for the client, None if the connection is lost."""
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
                    return PgError(SqlState.QUERY_CANCELED, "canceling statement due to statement timeout")
                raise exception
            case Exception():
                return to_pg_error(exception)
            case _:
                raise exception
