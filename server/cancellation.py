"""Being cancelled, for whoever goes on after errors."""

from __future__ import annotations

import asyncio


def raise_if_cancelled() -> None:
    """CancelledError if the running task was cancelled. For those who catch errors and go on.

    What a task awaits when it is cancelled may end with an error instead: a group one of whose tasks has failed
    already, a thread whose work fails. Who takes it for one more error then goes on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
