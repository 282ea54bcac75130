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

log = structlog.get_logger()


async def cancel_all(tasks: set[asyncio.Task[Any]], seconds: float = TASKS_END_S) -> None:
    """Cancels the tasks of a set and waits until they have ended. Logs the names of those that do not end in time.

    Tasks must remove themselves from the set when they end. Tasks that are added meanwhile are cancelled, too.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    requested: set[asyncio.Task[Any]] = set()
    while tasks and (left_s := until - loop.time()) > 0:
        for task in tasks - requested:
            task.cancel()
        requested |= tasks
        await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    if tasks:
        log.error("background tasks did not end", after_s=seconds, tasks=descriptions(tasks))


def exit_after(seconds: float) -> None:
    """Exits the process with code 1 if it still runs after the given time. Acknowledged commits are on disk."""
    timer = threading.Timer(seconds, _exit, (asyncio.get_running_loop(), seconds))
    timer.name, timer.daemon = "tidewire-exit", True
    timer.start()


def _exit(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    frames = sys._current_frames()
    threads = [
        f"{thread.name} at {_location(frames[thread.ident])}"
        for thread in threading.enumerate()
        if thread.ident in frames and thread is not threading.current_thread()
    ]
    try:
        log.error(
            "shutdown took too long", after_s=seconds, tasks=descriptions(asyncio.all_tasks(loop)), threads=threads
        )
    finally:
        os._exit(1)


def descriptions(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Returns each task's name and the line at which it waits."""
    texts = []
    for task in tasks:
        stack = task.get_stack(limit=1)
        texts.append(f"{task.get_name()} at {_location(stack[0])}" if stack else task.get_name())
    return sorted(texts)


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
