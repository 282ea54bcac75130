"""Processor time and memory of processes."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa


def cpu_s(pid: int) -> float:
    """Seconds of processor time, user and system, in steps of ten milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(root: int) -> float:
    """Seconds of processor time of a process and its descendants, such as Spark and Spark's Python workers."""
    found = _fields_of_all()
    tree = {root, *_descendants(root, found)}
    ticks = sum(sum(map(int, found[pid][11:15])) for pid in tree)  # with children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> set[int]:
    """The ids of the processes that a process and its children have started."""
    return _descendants(root, _fields_of_all())


def _descendants(root: int, fields: Mapping[int, Sequence[str]]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, own in fields.items():
        children.setdefault(int(own[1]), []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        started = children.get(waiting.pop(), [])
        found.update(started)
        waiting += started
    return found


def _fields_of_all() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, by process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


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
