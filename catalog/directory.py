"""Directories and files whose names outlast a loss of power: a name is on disk once its directory is synced."""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600  # what is in a data directory is for the user that runs the server alone


def make(directory: Path) -> None:
    """Creates a directory and those above it that are missing, for this user alone. OSError when it cannot be."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    for path in missing:
        sync(path.parent)


def sync(path: str | Path) -> None:
    """Returns when the file's content, or the directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
