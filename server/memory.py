"""A limit on the memory that a process allocates, so that an allocation fails before the machine runs out of memory."""

from __future__ import annotations

import resource
from pathlib import Path


def data_bytes() -> int | None:
    """The size of the process's data segment and private mappings, what RLIMIT_DATA limits; None if not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, IndexError, ValueError):  # not Linux
        return None
    return pages * resource.getpagesize()


def limit_memory(more: int) -> None:
    """Lets the process allocate `more` bytes than it has now; beyond that Python raises MemoryError.

    Without effect where the system does not tell how much the process has.
    """
    used = data_bytes()
    if used is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
