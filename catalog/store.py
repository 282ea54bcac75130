"""The SQLite file: one writer thread, one transaction at a time, a fence against a second server.

Callers hand `transaction` a function of the connection and await its result; the function runs in the writer
thread between BEGIN IMMEDIATE and COMMIT. With journal_mode=WAL and synchronous=FULL a transaction that returned is
on disk. Readers have a connection of their own.

Two servers on one directory would each believe what the other overwrites. The lock file stops a second one at the
door with a clear message; where locks do not work (some network file systems) the epoch does: every opening takes
the next epoch, and a transaction of an older one is refused (`Fenced`).

Cancel safety: a transaction whose waiter is cancelled still commits or rolls back as a whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from catalog.migrations import migrate

T = TypeVar("T")

PAGE_CACHE_KIB = 16 * 1024
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a checkpoint truncates a log that a burst has made longer


class StoreError(Exception):
    """The data directory cannot be used. `hint` says what a person can do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Fenced(Exception):
    """Another server has opened the directory since: this one must not write and has to end."""


class Store:
    """The catalog's SQLite file in a data directory, opened for writing by this process alone."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates. StoreError when the directory is locked, damaged, too new or not writable."""
        self.directory = directory
        self._lock_fd = _lock(directory)
        try:
            self._writer = self._connect()
            self.created = migrate(self._writer) > 0
            with self._writer:
                self._writer.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
            self.epoch: int = self._meta("epoch")
            self._reader = self._connect()
            self._reader.execute("PRAGMA query_only = 1")
        except sqlite3.DatabaseError as error:
            os.close(self._lock_fd)
            raise StoreError(
                f'data directory "{directory}" is damaged: {error}',
                "Restore the directory from a backup, or start with an empty one (--data-dir).",
            ) from error
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._reader_lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog-writer")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.directory / "catalog.sqlite", isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect only before the first table exists
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        return connection

    def _meta(self, key: str) -> int:
        (value,) = self._writer.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(value)

    async def transaction(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `act` in the writer thread in one transaction. On any exception nothing of it remains."""
        return await asyncio.wrap_future(self._thread.submit(self.transact, act))

    def transact(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """The same in the calling thread: for opening and closing, when nobody else writes."""
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._meta("epoch") != self.epoch:
                raise Fenced(f'another server has opened "{self.directory}"')
            result = act(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return result

    def read(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows as of the last commit. Safe from any thread."""
        with self._reader_lock:
            return self._reader.execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Waits for what was submitted, then lets go of the file and the lock."""
        self._thread.shutdown(wait=True)
        self._reader.close()
        self._writer.close()
        os.close(self._lock_fd)


def _lock(directory: Path) -> int:
    """An open file descriptor that holds the directory's lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f'could not open data directory "{directory}": {error.strerror}',
            "Choose a directory that this user may write (--data-dir).",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f'data directory "{directory}" is in use by another server (process {owner})',
            "Stop that server, or give this one a directory of its own (--data-dir).",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
