"""Processor time and memory of processes."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pyarrow as pa


def cpu_s(pid: int) -> float:
    """Seconds of processor time, user and system, in steps of ten milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(root: int) -> float:
    """Seconds of processor time of a process and its descendants, such as Spark and Spark's Python workers."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        pid = int(path.parent.name)
        used[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with children that have ended
        children.setdefault(int(fields[1]), []).append(pid)
    found, seconds = [root], 0.0
    while found:
        pid = found.pop()
        seconds += used[pid]
        found += children.get(pid, [])
    return seconds


def resident(pid: int) -> int:
    """The bytes of resident memory, with mapped files."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """The bytes of this process's resident memory without mapped files, after free memory has been returned."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return anonymous_bytes()


def anonymous_bytes(pid: int | None = None) -> int:
    """The bytes of a process's resident memory without mapped files, by default this process's."""
    return _status("self" if pid is None else str(pid), "RssAnon")


def peak(pid: int) -> int:
    """The greatest resident memory that a process ever had, in bytes."""
    return _status(str(pid), "VmHWM")


def _status(process: str, name: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
