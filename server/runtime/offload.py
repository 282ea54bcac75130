"""Parses and plans long texts, and computes large changes, in threads, so that they do not block other sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from server.sql.grammar.checkpoint import stoppable

TEXT_CHARS_MAX = 8_192  # a text of this length is parsed and planned on the event loop in a few milliseconds
THREADS_MAX = 4  # bounds the memory of long texts; separate from the default executor, whose threads do file IO

Result = TypeVar("Result")

_threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="long-text")


def release_later(text: str, work: Callable[..., object], *args: Any) -> None:
    """If `text` is long, runs `work(*args)`, which frees what was made from it, in a thread. Else does nothing."""
    if len(text) > TEXT_CHARS_MAX:
        _threads.submit(work, *args)


async def offload(text: str, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which parses or plans `text`. If the text is long, `work` runs in a thread.

    `work` must not change what other sessions see. Cancellation stops it at its next `checkpoint`, or before it begins.
    """
    return await in_stoppable_thread(work, *args) if len(text) > TEXT_CHARS_MAX else work(*args)


async def in_stoppable_thread(work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which runs in a thread. See `offload`."""
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, stoppable, stop.is_set, work, *args)
    finally:
        stop.set()
