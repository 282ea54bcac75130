"""A bound on how long a server takes to end, and what it waited for when it took longer."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

import structlog

TASKS_END_S = 5.0  # what background tasks have to end once they are cancelled
PROCESS_ENDS_S = 20.0  # from the signal on; the engine alone may take 5 s

log = structlog.get_logger()


async def cancelled(tasks: set[asyncio.Task[Any]], seconds: float = TASKS_END_S) -> None:
    """Cancels the tasks of a set that they leave when they end, those that join it meanwhile as well, and waits for
    them; those that have not ended after so long are named in the log, and left."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    asked: set[asyncio.Task[Any]] = set()
    while tasks and (left_s := until - loop.time()) > 0:
        for task in tasks - asked:
            task.cancel()
        asked |= tasks
        await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    if tasks:
        log.error("background tasks do not end", after_s=seconds, tasks=described(tasks))


def end_by_force(seconds: float = PROCESS_ENDS_S) -> None:
    """Ends the process with code 1 if it still runs after so many seconds. What was acknowledged is on disk."""
    timer = threading.Timer(seconds, _end, (asyncio.get_running_loop(), seconds))
    timer.name, timer.daemon = "tidewire-end", True
    timer.start()


def _end(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    frames = sys._current_frames()
    threads = [
        f"{thread.name} at {_place(frames[thread.ident])}"
        for thread in threading.enumerate()
        if thread.ident in frames and thread is not threading.current_thread()
    ]
    try:
        log.error("not ended in time", after_s=seconds, tasks=described(asyncio.all_tasks(loop)), threads=threads)
    finally:
        os._exit(1)


def described(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Each task's name, and where it waits."""
    found = []
    for task in tasks:
        stack = task.get_stack(limit=1)
        found.append(f"{task.get_name()} at {_place(stack[0])}" if stack else task.get_name())
    return sorted(found)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
