"""The resources that a server uses: its process, Spark's JVM, and the data directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import anonymous_bytes, descendants

BLOCK_INFO = "org.apache.spark.storage.BlockInfo"
"""Spark has one for each block that it stores: broadcasts, cached rows, shuffles' results."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What is used at a moment. The `jvm_` fields after `jvm_threads` need jcmd, and are None without it.

    `server_bytes`, `jvm_bytes`: resident memory without mapped files. `files`, `log_bytes`: of the data directory,
    without the server's own output and SQLite's WAL, of which up to 64 MiB are kept. `jvm_live_bytes`: the objects in
    the heap after a garbage collection.
    """

    server_bytes: int
    server_descriptors: int
    server_threads: int
    processes: int
    files: int
    log_bytes: int
    jvm_bytes: int
    jvm_descriptors: int
    jvm_threads: int
    jvm_live_bytes: int | None = None
    jvm_blocks: int | None = None


def measured(server: int, jvm: int, directory: Path, *, collect: bool = False) -> Resources:
    """`server`, `jvm`: process ids. `collect`: counts the live objects of the JVM, which takes up to a second."""
    files, log_bytes = _files(directory)
    live, blocks = _live(jvm) if collect else (None, None)
    return Resources(
        anonymous_bytes(server),
        _entries(server, "fd"),
        _entries(server, "task"),
        len(descendants(server)),
        files,
        log_bytes,
        anonymous_bytes(jvm),
        _entries(jvm, "fd"),
        _entries(jvm, "task"),
        live,
        blocks,
    )


def _entries(pid: int, name: str) -> int:
    return len(os.listdir(f"/proc/{pid}/{name}"))


def _files(directory: Path) -> tuple[int, int]:
    """The number and the size of the files. Files that are deleted meanwhile do not count."""
    count = size = 0
    for root, _, names in os.walk(directory):
        for name in names:
            if name in ("server.log", "catalog.sqlite-wal"):
                continue
            try:
                size += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
            count += 1
    return count, size


def _live(jvm: int) -> tuple[int | None, int | None]:
    """The bytes of live objects, and the number of Spark's blocks."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return None, None
    done = subprocess.run(
        [jcmd, str(jvm), "GC.class_histogram"], capture_output=True, text=True, check=True, timeout=120
    )
    total = re.search(r"^Total\s+\d+\s+(\d+)", done.stdout, re.MULTILINE)
    blocks = re.search(rf"^\s*\d+:\s+(\d+)\s+\d+\s+{re.escape(BLOCK_INFO)}(?:\s|$)", done.stdout, re.MULTILINE)
    assert total is not None, done.stdout
    return int(total[1]), int(blocks[1]) if blocks is not None else 0
