"""Bounds the duration of a shutdown, and logs what was still running when it took longer."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

import structlog

TASKS_END_S = 5.0  # how long cancelled background tasks may take to end
PROCESS_ENDS_S = 20.0  # from the start of the shutdown; stopping the engine may take 5 s

log = structlog.get_logger()


async def cancelled(tasks: set[asyncio.Task[Any]], seconds: float = TASKS_END_S) -> None:
    """Cancels the tasks of a set and waits until they have ended. Logs the names of those that do not end in time.

    Tasks must remove themselves from the set when they end. Tasks that are added meanwhile are cancelled, too.
    """
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
    """Exits the process with code 1 if it still runs after the given time. Acknowledged commits are on disk."""
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
    """Returns each task's name and the line at which it waits."""
    found = []
    for task in tasks:
        stack = task.get_stack(limit=1)
        found.append(f"{task.get_name()} at {_place(stack[0])}" if stack else task.get_name())
    return sorted(found)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
