"""A filesystem of a given size, for tests of a full disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """Mounts a filesystem of `size` bytes at the new directory `path`. Skips the test if that is not permitted."""
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    done = subprocess.run(mounting, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
