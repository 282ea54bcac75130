"""Cancellation of tasks that continue after errors."""

from __future__ import annotations

import asyncio


def raise_if_cancelled() -> None:
    """Raises CancelledError if the running task was cancelled. For code that catches errors and continues.

    When a task is cancelled, its await may raise another error instead: a task group in which a task failed, or a
    thread whose work failed. Code that handled this like any other error would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
