"""Cancellation of the parsing and planning of a statement.

A thread cannot be killed. Work that runs in a thread therefore calls `checkpoint` at least every few milliseconds;
`checkpoint` calls the `is_stopped` function that was given to `stoppable`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")

_is_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("is_stopped", default=None)


class Stopped(BaseException):
    """The statement was cancelled. A BaseException, so that `except Exception` does not catch it."""


def stoppable(is_stopped: Callable[[], bool], work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`. Once `is_stopped` returns true, the next `checkpoint` inside `work` raises Stopped."""
    token = _is_stopped.set(is_stopped)
    try:
        return work(*args)
    finally:
        _is_stopped.reset(token)


def checkpoint() -> None:
    """Raises Stopped if the statement that this thread processes was cancelled."""
    is_stopped = _is_stopped.get()
    if is_stopped is not None and is_stopped():
        raise Stopped
