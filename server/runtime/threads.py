"""Runs work on many rows in threads and work on few rows on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

THREAD_ROWS = 8_192  # work on more rows than these is done in a thread

Result = TypeVar("Result")


async def in_thread(work: Callable[..., Result], *args: Any) -> Result:
    """Runs `work`: in a thread if an argument is a table or array with more than THREAD_ROWS rows, else here."""
    large = any(isinstance(arg, pa.Table | np.ndarray) and len(arg) > THREAD_ROWS for arg in args)
    return await asyncio.to_thread(work, *args) if large else work(*args)


async def to_the_end(work: Coroutine[Any, Any, None] | asyncio.Task[None]) -> None:
    """Runs `work` to its end even if the caller is cancelled. CancelledError is raised after the end.

    An error of `work` is lost in this case. A second cancellation is raised at once; `work` still continues.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.cancelled() or task.exception()  # marks the exception as retrieved
        raise


async def thread_to_the_end(
    work: Callable[..., Result], *args: Any, discard: Callable[[Result], object] = lambda _: None
) -> Result:
    """Returns `work(*args)`, which runs in a thread. If the caller is cancelled, waits for the thread's end first.

    The result is then passed to `discard`, and an error of `work` is lost. A second cancellation is raised at once.
    """
    running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and running.exception() is None:
            discard(running.result())
        raise


async def all_or_none(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Returns when all tasks have succeeded. If one fails, cancels the others, awaits them and raises the error.

    Used instead of TaskGroup, which in Python 3.11 may report a failure as a cancellation of the caller.
    """
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
        for task in tasks:
            task.cancel()
        await to_the_end(_ended(tasks))
    for task in failed:
        await task


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks)
    for task in tasks:
        task.cancelled() or task.exception()  # marks the exception as retrieved
