"""A limit on the memory that a process allocates, so that an allocation fails before the machine runs out of memory."""

from __future__ import annotations

import resource
from pathlib import Path


def data_bytes() -> int | None:
    """Returns the size of the data segment and private mappings, which RLIMIT_DATA limits; None if it is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, IndexError, ValueError):  # not Linux
        return None
    return pages * resource.getpagesize()


def limit_memory(more: int) -> None:
    """Limits further allocations of the process to `more` bytes. Beyond that, Python raises MemoryError.

    Has no effect where `data_bytes` is unknown.
    """
    used = data_bytes()
    if used is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
