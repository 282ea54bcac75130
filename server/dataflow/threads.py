"""Work on many rows beside the event loop, work on few where it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

THREAD_ROWS = 8_192  # work on more rows than these is done in a thread

Result = TypeVar("Result")


async def in_thread(work: Callable[..., Result], *args: Any) -> Result:
    """`work` here, or in a thread if one of its arguments is a large table or array."""
    large = any(isinstance(arg, pa.Table | np.ndarray) and len(arg) > THREAD_ROWS for arg in args)
    return await asyncio.to_thread(work, *args) if large else work(*args)


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """`work`, which ends in any case: who is cancelled meanwhile learns of it then, however it ended."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.cancelled() or task.exception()  # it is known
        raise


async def all_or_none(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Returns when all have worked. If one fails, raises its error when the others, which are cancelled, have ended.

    A TaskGroup of Python 3.11 may count a failure as a cancellation of who waits for it.
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
        task.cancelled() or task.exception()  # it is known
