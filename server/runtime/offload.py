"""Parses and plans expensive statements, and computes large changes, in threads: they do not block other sessions."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import Any, TypeVar

from server.sql.grammar.checkpoint import Stopped, stoppable

TEXT_CHARS_MAX = 8_192  # a text of this length is usually parsed and planned on the event loop in a few milliseconds
LOOP_S = 0.02
"""How long the event loop works on a text. A short text can have a large plan: each view and item of WITH can double
that of the one that it names."""
TURN_S = 0.003  # the time that one session may occupy the event loop before other sessions run
FIRST_S = 0.25  # for which a thread's work is not stopped for other work
EXPENSIVE_S = 2.0  # the same, for work that has been stopped after FIRST_S

Result = TypeVar("Result")


class _ShortestFirst:
    """Threads that run work, the shortest first: what takes minutes does not delay what takes less.

    How long work takes is not known before. It has a number of seconds at first. If it takes longer and other work
    waits, it is stopped, and begins again with twice the time when nothing with less time waits. It therefore takes at
    most three times as long as without interruptions.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, _Job]] = []  # a heap: seconds, number
        self._numbers = itertools.count()

    def submit(self, is_cancelled: Callable[[], bool], work: Callable[[], Any], seconds: float) -> Future[Any]:
        """Returns the future result of `work`, which is not stopped for other work in the first `seconds`.

        It ends with Stopped at the first `checkpoint` after a cancellation.
        """
        job = _Job(is_cancelled, work)
        self._wait(seconds, job)
        return job.result

    def _wait(self, seconds: float, job: _Job) -> None:
        with self._lock:
            heappush(self._waiting, (seconds, next(self._numbers), job))
        self._threads.submit(self._run_next)  # once for each job that waits

    def _run_next(self) -> None:
        with self._lock:
            seconds, _, job = heappop(self._waiting)
        if not job.has_begun and not job.result.set_running_or_notify_cancel():
            return
        job.has_begun = True
        end = monotonic() + seconds

        def is_stopped() -> bool:
            return job.is_cancelled() or (bool(self._waiting) and monotonic() > end)

        try:
            result = stoppable(is_stopped, job.work)
        except Stopped as stopped:
            if job.is_cancelled():
                job.result.set_exception(stopped.with_traceback(None))
            else:
                self._wait(2 * seconds, job)
        except BaseException as error:
            job.result.set_exception(error)
        else:
            job.result.set_result(result)


@dataclass(eq=False)
class _Job:
    is_cancelled: Callable[[], bool]
    work: Callable[[], Any]
    has_begun: bool = False
    result: Future[Any] = field(default_factory=Future)


_GAVE_WAY = object()


class _StatementThreads:
    """Threads for statements: those that are expensive do not delay others, whichever session executes them.

    Work begins in one of two threads. If it takes longer than FIRST_S and other work waits, it is stopped, and begins
    again in one of two further threads, which run the shortest first, so that two sessions whose statements are
    planned for minutes do not delay those that take seconds. The number of threads bounds the memory of such texts. The
    threads are not those of the default executor, which do file IO.
    """

    def __init__(self) -> None:
        self._first = ThreadPoolExecutor(2, thread_name_prefix="planning")
        self._expensive = _ShortestFirst("planning expensive statements", 2)
        self._waiting: set[threading.Event] = set()  # of the work that waits for a thread of `_first`

    async def run(self, work: Callable[[], Result]) -> Result:
        """Returns `work()`. Cancellation stops it at its next `checkpoint`, or before it begins."""
        loop, cancelled = asyncio.get_running_loop(), threading.Event()
        self._waiting.add(cancelled)
        try:
            found: Any = await loop.run_in_executor(self._first, self._try, cancelled, work)
            if found is _GAVE_WAY:
                found = await asyncio.wrap_future(self._expensive.submit(cancelled.is_set, work, EXPENSIVE_S))
            result: Result = found
            return result
        finally:
            cancelled.set()
            self._waiting.discard(cancelled)

    def _try(self, cancelled: threading.Event, work: Callable[[], Any]) -> Any:
        """Returns `work()`, or _GAVE_WAY if it was stopped."""
        self._waiting.discard(cancelled)
        end = monotonic() + FIRST_S
        try:
            return stoppable(lambda: cancelled.is_set() or (bool(self._waiting) and monotonic() > end), work)
        except Stopped:
            return _GAVE_WAY


_statements = _StatementThreads()
_releasing = ThreadPoolExecutor(1, thread_name_prefix="releasing")
_background = _ShortestFirst("planning dataflows", 1)  # statements do not wait for it
_decoding = ThreadPoolExecutor(2, thread_name_prefix="decoding")


def release_later(text: str, work: Callable[..., object], *args: Any) -> None:
    """If `text` is long, runs `work(*args)`, which frees what was made from it, in a thread. Else does nothing."""
    if len(text) > TEXT_CHARS_MAX:
        _releasing.submit(work, *args)


async def offload(text: str, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which parses or plans `text`. If that is expensive, `work` runs in a thread.

    `work` may begin several times, and must not change what other sessions see. Cancellation stops it at its next
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
    return await _statements.run(partial(work, *args))


async def in_background_thread(work: Callable[..., Result], *args: Any) -> Result:
    """As `in_stoppable_thread`, for work that no statement waits for. It may begin several times."""
    stop = threading.Event()
    try:
        found: Result = await asyncio.wrap_future(_background.submit(stop.is_set, partial(work, *args), FIRST_S))
        return found
    finally:
        stop.set()


async def in_decoding_thread(work: Callable[..., Result], *args: Any) -> Result:
    """As `in_stoppable_thread`, for the data of COPY FROM and long parameters. It begins once."""
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_decoding, stoppable, stop.is_set, work, *args)
    finally:
        stop.set()
