"""The SQLite file: one writer thread, one transaction at a time, a fence against a second server.

Callers pass `transaction` a function of the connection and await its result. The function runs in the writer
thread between BEGIN IMMEDIATE and COMMIT. With journal_mode=WAL and synchronous=FULL a transaction that returned is
on disk. Reads use another connection.

Two servers on one directory would overwrite each other's data. The lock file stops a second server at start. Where the
lock does not work (some network file systems, a removed lock file) the epoch fences: every opening increments the
epoch, and a transaction of an older epoch is refused (`Fenced`).

A failed sync does not undo its commit: the frames may be complete in SQLite's write-ahead log, and the next opening
would treat them as committed although the caller received an error. Therefore another commit overwrites them before the
failure is reported. If that fails, too, the outcome is unknown and the server must end (`Undecided`).

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
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from catalog.directory import DIRECTORY_MODE, FILE_MODE, create, is_empty, is_private, make
from catalog.migrations import TooNew, migrate

T = TypeVar("T")

FILE = "catalog.sqlite"
PAGE_CACHE_KIB = 16 * 1024
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a checkpoint truncates a log that a burst has made longer
FREE_PAGES_KEPT = 1024  # of 4 KiB, kept for the next commits
FREE_PAGES_STEP = 256  # pages freed per transaction, which takes the writer a few milliseconds
_IF_NOT_FENCED = " AND EXISTS (SELECT 1 FROM meta WHERE key = 'epoch' AND value = ?)"
_SYNC_FAILED = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")
_UNUSABLE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")


class StoreError(Exception):
    """The data directory cannot be used. `hint` says how to correct this."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class MustEnd(Exception):
    """The server must not write any more and must end."""


class Fenced(MustEnd):
    """Another server has opened the directory since this one did."""


class Undecided(MustEnd):
    """A commit failed, and whether it is on disk is unknown until the next opening."""


class Store:
    """The catalog's SQLite file in a data directory, opened for writing by this process only."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates the file. StoreError if the directory is locked, damaged, too new or not writable."""
        self.directory = directory
        with ExitStack() as held:
            held.callback(os.close, lock(directory))
            try:
                create(
                    directory / FILE
                )  # SQLite would create it readable by everyone; its other files inherit the mode
                self._writer = self._connect(held)
                self.created = migrate(self._writer) == 0
                # One statement, so that two servers that open concurrently get different epochs.
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
            self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
            self._thread = threading.Thread(target=self._work, name="catalog-writer", daemon=True)
            self._is_closed = False
            self._reader_lock = threading.Lock()
            self._undecided: Undecided | None = None
            self.transactions = 0
            """The number of committed transactions."""
            self._held = held.pop_all()
            self._thread.start()

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
        """Runs `act` in the writer thread in one transaction, which any exception rolls back."""
        return await self._in_writer(partial(self._transact, act))

    async def insert_alone(self, insert: str, parameters: tuple[object, ...]) -> int | None:
        """Executes an INSERT with a WHERE clause as a transaction of its own. Returns the row's id.

        Returns None if no row was inserted: because of its WHERE clause, or because this server is fenced.
        `transaction` reports which.

        A transaction of one statement takes the interpreter's lock from the event loop 4 instead of 13 times.
        """
        return await self._in_writer(partial(self._insert_alone, insert, parameters))

    async def _in_writer(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if done.cancelled():
                return
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_settle, done, result, error)

        self._submit(run)
        return await done

    def transact(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """As `transaction`, for callers outside the event loop. Blocks the calling thread."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(self._transact(act))
            except BaseException as error:
                done.set_exception(error)

        self._submit(run)
        return done.result()

    def _submit(self, run: Callable[[], None]) -> None:
        if self._is_closed:
            raise RuntimeError("the store is closed")
        self._queue.put(run)

    def _work(self) -> None:
        while (run := self._queue.get()) is not None:
            run()

    def _transact(self, act: Callable[[sqlite3.Connection], T]) -> T:
        self._check_decided()
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone() != (self.epoch,):
                raise Fenced(f'another server has opened "{self.directory}"')
            result = act(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            self._undo(error)
            raise
        self.transactions += 1
        return result

    def _insert_alone(self, insert: str, parameters: tuple[object, ...]) -> int | None:
        self._check_decided()
        try:
            cursor = self._writer.execute(insert + _IF_NOT_FENCED, (*parameters, self.epoch))
        except BaseException as error:
            self._undo(error)
            raise
        if cursor.rowcount == 0:
            return None
        self.transactions += 1
        return cursor.lastrowid

    def _check_decided(self) -> None:
        if self._undecided is not None:
            raise self._undecided

    def _undo(self, error: BaseException) -> None:
        """Rolls back a transaction that has failed. Undecided if it may be on disk."""
        if self._writer.in_transaction:  # SQLite has rolled back already if the disk is full or failed
            self._writer.execute("ROLLBACK")
        if getattr(error, "sqlite_errorname", "") in _SYNC_FAILED:
            self._undo_unsynced(error)

    def _undo_unsynced(self, error: BaseException) -> None:
        """Overwrites the frames of a commit whose sync failed, by another commit. Undecided if it fails, too.

        It increments the epoch because SQLite writes no frame for an unchanged value.
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
        """Returns a bounded number of free pages to the file system. True if more are left.

        Call it after compaction: auto_vacuum=INCREMENTAL frees no page by itself.
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
        """Waits for submitted transactions, then closes the file and releases the lock. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        with self._reader_lock:
            self._held.close()


def _settle(done: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    if done.done():
        return  # its waiter was cancelled
    if error is None:
        done.set_result(cast(T, result))
    else:
        done.set_exception(error)


def _give_back(tx: sqlite3.Connection) -> bool:
    (free,) = tx.execute("PRAGMA freelist_count").fetchone()
    excess = int(free) - FREE_PAGES_KEPT
    for _ in range(min(excess, FREE_PAGES_STEP)):
        tx.execute("PRAGMA incremental_vacuum(1)")  # one by one: execute() stops after the pragma's first page
    return excess > FREE_PAGES_STEP


def is_unusable(error: sqlite3.DatabaseError) -> bool:
    """Whether the cause of the error is outside the file, such as its permissions or a full disk."""
    return getattr(error, "sqlite_errorname", "").startswith(_UNUSABLE)


def explained(directory: Path, error: sqlite3.DatabaseError) -> StoreError:
    """The error to show to the user: the directory is damaged or cannot be used."""
    if isinstance(error, sqlite3.ProgrammingError):
        raise error  # a bug of the caller, not a property of the file
    if is_unusable(error):
        return StoreError(
            f'could not use data directory "{directory}": {error}',
            "Choose a directory on a disk with space that this user may write and nobody else uses (--data-dir).",
        )
    return StoreError(
        f'data directory "{directory}" is damaged: {error}',
        "Restore the directory from a backup, or start with an empty one (--data-dir).",
    )


def check_exists(directory: Path) -> None:
    """StoreError if the directory is not a data directory."""
    if not (directory / FILE).is_file():
        raise StoreError(
            f'"{directory}" is not a data directory: it has no file {FILE}',
            "Name the directory that a server uses (--data-dir).",
        )


def _check_permissions(directory: Path) -> None:
    """StoreError if other users may read the directory. Corrects the permissions of an empty one, as initdb does."""
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
    """An open file descriptor that holds the directory's lock.

    StoreError if another server holds the lock, or if the directory cannot be used or has wrong permissions.
    """
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
