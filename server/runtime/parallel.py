"""Work on the parts of something large, in as many threads as there are processors.

The work must release Python's lock for most of its time, as Arrow and numpy do. The threads are shared by all callers,
so that their number bounds the memory of parts in progress.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

THREADS = len(os.sched_getaffinity(0))

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="parallel")

Part = TypeVar("Part")
Result = TypeVar("Result")


async def worked(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Returns `work(part)` for each part. If a call fails, raises its error when all calls have ended."""
    loop = asyncio.get_running_loop()
    found = await asyncio.gather(*(loop.run_in_executor(_pool, work, part) for part in parts), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found  # type: ignore[return-value]


def in_order(work: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """Returns `work(part)` for each part, in their order. At most `THREADS` results wait.

    The iterator blocks: it is not for the event loop.
    """
    if THREADS == 1:
        yield from map(work, parts)
        return
    begun: deque[Future[Result]] = deque()
    try:
        for part in parts:
            begun.append(_pool.submit(work, part))
            if len(begun) >= THREADS:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
