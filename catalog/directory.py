"""Directories and files whose names outlast a loss of power: a name is on disk once its directory is synced."""

from __future__ import annotations

import os
from pathlib import Path


def make(directory: Path) -> None:
    """Creates a directory and those above it that are missing, for this user alone. OSError when it cannot be."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in missing:
        sync(path.parent)


def sync(path: str | Path) -> None:
    """Returns when the file's content, or the directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
