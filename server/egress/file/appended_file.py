"""A file to which one sink appends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from catalog import directory
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.upstream import UpstreamError

_RESTORE = "Restore the file, or drop the sink and create another one, with another file."


class AppendedFile:
    """Locks the file, so that one server at a time writes it.

    The functions do IO and are called in threads. OSError if the file cannot be written.
    """

    def __init__(self, path: Path, *, is_new: bool) -> None:
        """Opens the file. PgError if it does not exist although it is not new, UpstreamError if another server has it.

        `is_new`: the sink has not committed a frontier yet.
        """
        self._path = path
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if is_new else 0)
        try:
            self.number = os.open(path, flags, directory.FILE_MODE)
            """The file descriptor."""
        except FileNotFoundError:
            if is_new:
                raise
            raise self.refused("does not exist") from None
        try:
            fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.number)
            raise UpstreamError(
                f'another server writes to file "{path}" for the same sink',
                "Stop one of the servers, or drop the sink on one of them.",
            ) from None
        self._size = os.fstat(self.number).st_size

    def refused(self, reason: str) -> PgError:
        """The error of a file that cannot be continued."""
        return PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, f'file "{self._path}" of a sink {reason}', hint=_RESTORE
        )

    def cut(self, end: int) -> None:
        """Removes what follows `end`. Returns when this is on disk."""
        os.ftruncate(self.number, end)
        self._size = end
        os.fsync(self.number)
        directory.sync(self._path.parent)

    def append(self, data: bytes | bytearray) -> int:
        """Returns the number of bytes. Errors as those of `sync`."""
        self._check()  # before a frontier is written, which would say that the file has everything before it
        written = 0
        while written < len(data):
            count = os.write(self.number, memoryview(data)[written:])
            written += count
            self._size += count
        return written

    def sync(self) -> None:
        """Returns when everything that was appended is on disk.

        PgError if another program has removed, replaced or changed the file.
        """
        os.fsync(self.number)
        self._check()

    def _check(self) -> None:
        own = os.fstat(self.number)
        try:
            is_there = os.path.samestat(own, os.stat(self._path))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise self.refused("was removed or replaced while the sink wrote to it")
        if own.st_size != self._size:
            raise self.refused(
                f"was changed by another program: it has {own.st_size} bytes, but the sink has written {self._size}"
            )

    def close(self) -> None:
        """Also releases the lock."""
        os.close(self.number)
