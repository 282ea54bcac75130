"""Returns memory that the C library's allocator keeps to the operating system.

numpy and Python use this allocator. It keeps most freed memory for further allocations of the same thread: large
results that many threads compute, one after the other, leave hundreds of megabytes. Arrow's buffers have another
allocator (`allocator`).
"""

from __future__ import annotations

import asyncio
import ctypes

PERIOD_S = 60.0


async def return_periodically() -> None:
    """Returns freed memory every PERIOD_S seconds, until it is cancelled. Only glibc has a function for this."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(PERIOD_S)
        await asyncio.to_thread(trim, ctypes.c_size_t(0))
