"""A file with CDCv2 messages as lines of JSON, to which a sink appends."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from catalog import directory
from protocol.pgwire.errors import PgError, SqlState

BLOCK_BYTES = 1 << 16


class ChangesFile:
    """The functions do IO and are called in threads. OSError if the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def open(self, *, is_new: bool) -> None:
        """Opens the file after its last complete line. PgError if it is missing although it is not new."""
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if is_new else 0)
        try:
            self._file = os.open(self._path, flags, directory.FILE_MODE)
        except FileNotFoundError:
            if is_new:
                raise
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'file "{self._path}" of a sink does not exist',
                hint="Restore the file, or drop the sink and create it again.",
            ) from None
        os.ftruncate(self._file, self._lines_end())
        directory.sync(self._path.parent)

    def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        """Appends a line per message. Returns the numbers of messages and of bytes."""
        assert self._file is not None
        lines = [line for message in messages for line in (message, b"\n")]
        data = b"".join(lines)
        written = 0
        while written < len(data):
            written += os.write(self._file, memoryview(data)[written:])
        return len(lines) // 2, written

    def sync(self) -> None:
        """Returns when everything that was appended is on disk."""
        assert self._file is not None
        os.fsync(self._file)

    def close(self) -> None:
        """May be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lines_end(self) -> int:
        """The end of the last complete line."""
        assert self._file is not None
        end = os.fstat(self._file).st_size
        while end:
            begin = max(0, end - BLOCK_BYTES)
            found = os.pread(self._file, end - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
        return 0
