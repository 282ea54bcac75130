"""Creates directories and files that survive a power failure and that other users cannot read.

A name is durable once its directory is synced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600  # of new directories and files
GROUP_MODE = 0o050  # group permissions that are accepted in addition


def make(directory: Path) -> None:
    """Creates a directory and its missing parents, accessible to this user only. OSError if that fails."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    for path in missing:
        sync(path.parent)


def create(path: Path) -> None:
    """Creates an empty file, accessible to this user only, unless it exists. OSError if that fails."""
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        sync(path.parent)


def is_private(directory: Path) -> bool:
    """Whether only the owner can write and at most the owner's group can read, as PostgreSQL requires."""
    return not stat.S_IMODE(directory.stat().st_mode) & ~(DIRECTORY_MODE | GROUP_MODE)


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def sync(path: str | Path) -> None:
    """Syncs a file's content, or a directory's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
