"""Stops the parsing and planning of a statement that nobody waits for any more.

A thread cannot be killed. The work that runs in one calls `checkpoint` at least every few milliseconds; whoever started
it sets the event that was passed to `stoppable`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")

_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Stopped(BaseException):
    """The statement was cancelled. Not an `Exception`: no handler of errors may take it for one."""


def stoppable(stop: threading.Event, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`. Raises Stopped from the next `checkpoint` inside it once `stop` is set."""
    token = _stop.set(stop)
    try:
        return work(*args)
    finally:
        _stop.reset(token)


def checkpoint() -> None:
    """Raises Stopped if the statement that this thread works for was cancelled."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Stopped


def stop_event() -> threading.Event | None:
    """The event that `checkpoint` looks at. For inner loops, which keep it in a local variable."""
    return _stop.get()
