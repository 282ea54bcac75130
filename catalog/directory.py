"""Directories and files whose names outlast a loss of power, and which other users cannot read.

A name is on disk once its directory is synced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600  # of what is created in a data directory
GROUP_MODE = 0o050  # what the owner of a data directory may allow the group besides


def make(directory: Path) -> None:
    """Creates a directory and those above it that are missing, for this user alone. OSError when it cannot be."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    for path in missing:
        sync(path.parent)


def create(path: Path) -> None:
    """Creates an empty file for this user alone unless there is a file of that name. OSError when it cannot."""
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        sync(path.parent)


def is_private(directory: Path) -> bool:
    """Whether nobody but the owner can write there, and nobody but the owner's group can read, as PostgreSQL asks."""
    return not stat.S_IMODE(directory.stat().st_mode) & ~(DIRECTORY_MODE | GROUP_MODE)


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def sync(path: str | Path) -> None:
    """Returns when the file's content, or the directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
