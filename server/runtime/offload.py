"""Parses and plans expensive statements, and computes large changes, in threads: they do not block other sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

from server.sql.grammar.checkpoint import Stopped, stoppable

TEXT_CHARS_MAX = 8_192  # a text of this length is usually parsed and planned on the event loop in a few milliseconds
LOOP_S = 0.02
"""How long the event loop works on a text. A short text can have a large plan: each view and item of WITH can double
that of the one that it names."""
TURN_S = 0.003  # the time that one session may occupy the event loop before other sessions run
THREADS_MAX = 4  # bounds the memory of such texts; separate from the default executor, whose threads do file IO

Result = TypeVar("Result")

_threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="planning")
_background = ThreadPoolExecutor(1, thread_name_prefix="planning dataflows")  # statements do not wait for it
_decoding = ThreadPoolExecutor(2, thread_name_prefix="decoding")


def release_later(text: str, work: Callable[..., object], *args: Any) -> None:
    """If `text` is long, runs `work(*args)`, which frees what was made from it, in a thread. Else does nothing."""
    if len(text) > TEXT_CHARS_MAX:
        _threads.submit(work, *args)


async def offload(text: str, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which parses or plans `text`. If that is expensive, `work` runs in a thread.

    `work` may begin twice, and must not change what other sessions see. Cancellation stops it at its next
    `checkpoint`, or before it begins.
    """
    try:
        return at_once(text, work, *args)
    except Stopped:
        pass  # outside of the handler, the frames of the stopped work are freed
    return await in_stoppable_thread(work, *args)


def at_once(text: str, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which parses or plans `text`, on the event loop.

    Raises Stopped if the text is long, or at the first `checkpoint` after LOOP_S. The caller then calls
    `in_stoppable_thread`.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise Stopped
    end = monotonic() + LOOP_S
    return stoppable(lambda: monotonic() > end, work, *args)


async def in_stoppable_thread(work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which runs in a thread. See `offload`."""
    return await _in_thread_of(_threads, work, *args)


async def in_background_thread(work: Callable[..., Result], *args: Any) -> Result:
    """As `in_stoppable_thread`, for work that no statement waits for."""
    return await _in_thread_of(_background, work, *args)


async def in_decoding_thread(work: Callable[..., Result], *args: Any) -> Result:
    """As `in_stoppable_thread`, for the data of COPY FROM and long parameters."""
    return await _in_thread_of(_decoding, work, *args)


async def _in_thread_of(threads: ThreadPoolExecutor, work: Callable[..., Result], *args: Any) -> Result:
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, stoppable, stop.is_set, work, *args)
    finally:
        stop.set()
