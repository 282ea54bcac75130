"""Stops the parsing and planning of a statement that nobody waits for any more.

A thread cannot be killed. The work that runs in one calls `checkpoint` at least every few milliseconds, which asks
whoever started it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")

_is_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("is_stopped", default=None)


class Stopped(BaseException):
    """The statement was cancelled. Not an `Exception`: no handler of errors may take it for one."""


def stoppable(is_stopped: Callable[[], bool], work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`. Raises Stopped from the next `checkpoint` inside it once `is_stopped` says so."""
    token = _is_stopped.set(is_stopped)
    try:
        return work(*args)
    finally:
        _is_stopped.reset(token)


def checkpoint() -> None:
    """Raises Stopped if the statement that this thread works for was cancelled."""
    is_stopped = _is_stopped.get()
    if is_stopped is not None and is_stopped():
        raise Stopped
