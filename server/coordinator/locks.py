"""Table locks, which make writers wait for each other in order of arrival.

An UPDATE reads, waits for Spark, and commits. A write in between could cause a conflict, so a lock makes other writers
wait. There are three kinds of writers:

- A statement that only adds rows holds its table's lock in the mode ADD during its commit.
- A statement that reads only rows with given keys, and changes them, holds the lock in the mode of the keys' column,
  and an exclusive lock of each key.
- Any other statement that reads holds the lock exclusively.

Writers with the same mode, except the exclusive one, do not wait for each other. Locks provide fairness only.
Correctness comes from the committer's check that nothing that was read was written since (`Conflict`), because a
transaction that holds a lock does not wait for another one: two such transactions would deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from catalog.objects import ObjectId
from server.coordinator.key_conflicts import Keys

Mode = str
ADD: Mode = "add"
EXCLUSIVE: Mode = "exclusive"


class TableLock:
    """A lock with modes, granted in order of arrival. Cancel safety: a waiter leaves the queue.

    When the lock becomes free, all waiters with the mode of the first one get it, except those after an exclusive one.
    """

    __slots__ = ("_holders", "_mode", "_waiting")

    def __init__(self) -> None:
        self._holders = 0
        self._mode = EXCLUSIVE  # of the holders, if there are any
        self._waiting: deque[tuple[Mode, asyncio.Future[None]]] = deque()

    @property
    def idle(self) -> bool:
        return self._holders == 0 and not self._waiting

    def acquire_at_once(self, mode: Mode) -> bool:
        """Whether the lock was granted, because nobody waits for it and no holder excludes the mode."""
        if self._waiting or not (self._holders == 0 or mode == self._mode != EXCLUSIVE):
            return False
        self._mode = mode
        self._holders += 1
        return True

    async def acquire(self, mode: Mode) -> None:
        if self.acquire_at_once(mode):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((mode, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._waiting.remove((mode, turn))
                self._grant()
            raise

    def release(self) -> None:
        self._holders -= 1
        self._grant()

    def _grant(self) -> None:
        if not self._waiting:
            return
        if self._holders == 0:
            self._mode = self._waiting[0][0]
        elif self._mode == EXCLUSIVE or self._waiting[0][0] != self._mode:
            return
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            mode, turn = waiting.popleft()
            if mode == self._mode and (mode != EXCLUSIVE or self._holders == 0):
                self._holders += 1
                turn.set_result(None)
                continue
            self._waiting.append((mode, turn))
            if mode == EXCLUSIVE or self._mode == EXCLUSIVE:
                break
        self._waiting.extend(waiting)


class TableLocks:
    """One lock per table and one per key, which exist while they are in use."""

    def __init__(self) -> None:
        self._locks: dict[str, TableLock] = {}

    async def acquire(self, tables: Iterable[ObjectId], mode: Mode) -> tuple[str, ...]:
        """Locks all tables. Returns the locks for `release`. Cancel safety: no lock is kept."""
        return await self._acquire([(table, mode) for table in sorted(set(tables))])

    def acquire_at_once(self, tables: Iterable[ObjectId], mode: Mode) -> tuple[str, ...] | None:
        """Locks all tables if that needs no waiting. Returns the locks for `release`, or None."""
        taken: list[str] = []
        for table in tables:
            if not self._lock(table).acquire_at_once(mode):
                self.release(taken)
                return None
            taken.append(table)
        return tuple(taken)

    async def acquire_keys(self, table: ObjectId, keys: Keys) -> tuple[str, ...]:
        """Locks keys of a table. Returns the locks for `release`. Cancel safety: no lock is kept."""
        mode = f"column {keys.column}"
        names = sorted(f"{table} {mode} {value!r}" for value in keys.values)
        return await self._acquire([(table, mode), *((name, EXCLUSIVE) for name in names)])

    async def _acquire(self, wanted: Iterable[tuple[str, Mode]]) -> tuple[str, ...]:
        """`wanted`: in an order that is the same for all callers."""
        taken: list[str] = []
        try:
            for name, mode in wanted:
                await self._lock(name).acquire(mode)
                taken.append(name)
        except asyncio.CancelledError:
            self.release(taken)
            raise
        return tuple(taken)

    def _lock(self, name: str) -> TableLock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = TableLock()
        return lock

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            lock = self._locks[name]
            lock.release()
            if lock.idle:
                del self._locks[name]
