"""The part of a filesystem that temporary files leave free, for commits."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

RESERVED_SHARE = 10
"""One part of so many remains free."""
RESERVED_BYTES_MAX = 1 << 30


def check(directory: Path | None) -> None:
    """Called before a part of a temporary file is written. OSError if only the reserved space is left.

    `directory` None: that of the system.
    """
    found = os.statvfs(directory or tempfile.gettempdir())
    reserved = min(found.f_blocks * found.f_frsize // RESERVED_SHARE, RESERVED_BYTES_MAX)
    if found.f_bavail * found.f_frsize < reserved:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
