"""The SQLite file: one writer thread, one transaction at a time, a fence against a second server.

Callers hand `transaction` a function of the connection and await its result; the function runs in the writer
thread between BEGIN IMMEDIATE and COMMIT. With journal_mode=WAL and synchronous=FULL a transaction that returned is
on disk. Readers have a connection of their own.

Two servers on one directory would each believe what the other overwrites. The lock file stops a second one at the
door with a clear message; where the lock does not hold (some network file systems, a lock file that was removed) the
epoch does: every opening takes the next epoch, and a transaction of an older one is refused (`Fenced`).

A commit whose sync fails is not undone by that: its frames lie in SQLite's log, whole perhaps, and the next opening
would take them for committed, after everybody was told otherwise. So they are overwritten, by another commit, before
the failure is told; if that fails, too, nothing is told (`Undecided`).

Cancel safety: a transaction whose waiter is cancelled still commits or rolls back as a whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

from catalog.directory import DIRECTORY_MODE, FILE_MODE, create, is_empty, is_private, make
from catalog.migrations import TooNew, migrate

T = TypeVar("T")

FILE = "catalog.sqlite"
PAGE_CACHE_KIB = 16 * 1024
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a checkpoint truncates a log that a burst has made longer
FREE_PAGES_KEPT = 1024  # of 4 KiB: what the next commits fill again need not leave the file
FREE_PAGES_STEP = 256  # given back in one transaction: a few milliseconds of the writer's time
_SYNC_FAILED = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")
_UNUSABLE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")


class StoreError(Exception):
    """The data directory cannot be used. `hint` says what a person can do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class MustEnd(Exception):
    """This server must not write any more, and has to end."""


class Fenced(MustEnd):
    """Another server has opened the directory since."""


class Undecided(MustEnd):
    """A commit failed, and only the next opening can tell whether it is on disk."""


class Store:
    """The catalog's SQLite file in a data directory, opened for writing by this process alone."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates. StoreError when the directory is locked, damaged, too new or not writable."""
        self.directory = directory
        with ExitStack() as held:
            held.callback(os.close, lock(directory))
            try:
                create(directory / FILE)  # SQLite would let everybody read it; its other files get its permissions
                self._writer = self._connect(held)
                self.created = migrate(self._writer) == 0
                # One statement: of two servers that open at once, each has to see an epoch of its own.
                take_epoch = "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value"
                ((self.epoch,),) = self._writer.execute(take_epoch).fetchall()
                self._reader = self._connect(held)
                self._reader.execute("PRAGMA query_only = 1")
            except sqlite3.DatabaseError as error:
                raise explained(directory, error) from error
            except OSError as error:
                raise StoreError(
                    f'could not use data directory "{directory}": {error.strerror}',
                    "Choose a directory on a disk with space that this user may write (--data-dir).",
                ) from error
            except TooNew as error:
                raise StoreError(
                    f'data directory "{directory}" cannot be read: {error}',
                    "Start the Tidewire that wrote it, or a later one.",
                ) from error
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog-writer")
            self._reader_lock = threading.Lock()
            self._undecided: Undecided | None = None
            self.transactions = 0
            """How many were committed."""
            self._held = held.pop_all()

    def _connect(self, held: ExitStack) -> sqlite3.Connection:
        connection = sqlite3.connect(self.directory / FILE, isolation_level=None, check_same_thread=False)
        held.enter_context(closing(connection))
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect only before the first table exists
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        return connection

    async def transaction(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `act` in the writer thread in one transaction. On any exception nothing of it remains."""
        return await asyncio.wrap_future(self._thread.submit(self._transact, act))

    def transact(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """The same for callers outside the event loop: blocks the calling thread until it is done."""
        return self._thread.submit(self._transact, act).result()

    def _transact(self, act: Callable[[sqlite3.Connection], T]) -> T:
        if self._undecided is not None:
            raise self._undecided
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone() != (self.epoch,):
                raise Fenced(f'another server has opened "{self.directory}"')
            result = act(connection)
            connection.execute("COMMIT")
            self.transactions += 1
        except BaseException as error:
            if connection.in_transaction:  # SQLite itself rolls back when the disk is full or fails
                connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorname", "") in _SYNC_FAILED:
                self._undo_unsynced(error)
            raise
        return result

    def _undo_unsynced(self, error: BaseException) -> None:
        """A commit that overwrites the frames of one whose sync failed. Undecided if it fails, too.

        It takes the next epoch: SQLite writes nothing for a value that stays what it was.
        """
        take_epoch = "UPDATE meta SET value = value + 1 WHERE key = 'epoch' AND value = ? RETURNING value"
        try:
            for (epoch,) in self._writer.execute(take_epoch, (self.epoch,)).fetchall():
                self.epoch = epoch
        except sqlite3.Error as again:
            message = f'data directory "{self.directory}" could not be synced: {error}; then: {again}'
            self._undecided = Undecided(message)
            raise self._undecided from again

    async def give_back(self) -> bool:
        """Returns free pages to the file system, a bounded number of them; True while there are more.

        Call it after compaction: auto_vacuum=INCREMENTAL frees nothing by itself.
        """
        return await self.transaction(_give_back)

    def read(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows as of the last commit. Safe from any thread. StoreError when the file is damaged."""
        try:
            with self._reader_lock:
                return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise explained(self.directory, error) from error

    def close(self) -> None:
        """Waits for what was submitted, then lets go of the file and the lock. Closing twice is no error."""
        self._thread.shutdown(wait=True)
        with self._reader_lock:
            self._held.close()


def _give_back(tx: sqlite3.Connection) -> bool:
    (free,) = tx.execute("PRAGMA freelist_count").fetchone()
    excess = int(free) - FREE_PAGES_KEPT
    for _ in range(min(excess, FREE_PAGES_STEP)):
        tx.execute("PRAGMA incremental_vacuum(1)")  # one by one: execute() stops after the pragma's first page
    return excess > FREE_PAGES_STEP


def is_unusable(error: sqlite3.DatabaseError) -> bool:
    """Whether the file cannot be used for a reason outside of it, such as its permissions or a full disk."""
    return getattr(error, "sqlite_errorname", "").startswith(_UNUSABLE)


def explained(directory: Path, error: sqlite3.DatabaseError) -> StoreError:
    """The error as a user should see it: the directory is damaged, or cannot be used."""
    if isinstance(error, sqlite3.ProgrammingError):
        raise error  # ours, not the file's
    if is_unusable(error):
        return StoreError(
            f'could not use data directory "{directory}": {error}',
            "Choose a directory on a disk with space that this user may write and nobody else uses (--data-dir).",
        )
    return StoreError(
        f'data directory "{directory}" is damaged: {error}',
        "Restore the directory from a backup, or start with an empty one (--data-dir).",
    )


def _check_permissions(directory: Path) -> None:
    """StoreError if others may read the directory. Of an empty one the permissions are corrected, as by initdb."""
    if is_private(directory):
        return
    if is_empty(directory):
        directory.chmod(DIRECTORY_MODE)
        return
    raise StoreError(
        f'data directory "{directory}" has invalid permissions',
        "Permissions should be u=rwx (0700) or u=rwx,g=rx (0750): "
        f"others could read everything that is stored. Run: chmod 0700 {shlex.quote(str(directory))}",
    )


def lock(directory: Path) -> int:
    """An open file descriptor that holds the directory's lock. StoreError if a server has it or permissions are bad."""
    try:
        make(directory)
        _check_permissions(directory)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StoreError(
            f'could not open data directory "{directory}": {error.strerror}',
            "Choose a directory that this user may write (--data-dir).",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f'data directory "{directory}" is in use by another server (process {owner})',
            "Stop that server, or give this one a directory of its own (--data-dir).",
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise StoreError(
            f'could not lock data directory "{directory}": {error.strerror}',
            "Choose a directory on a file system that has locks and space (--data-dir).",
        ) from error
    return descriptor
