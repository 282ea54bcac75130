"""Table locks: shared for writes that do not read, exclusive for statements that read and write.

An UPDATE reads, waits for Spark, and commits. A write in between would cause a conflict, so the lock makes other
writers wait, in order of arrival. Locks provide fairness only. Correctness comes from the committer's check that
nothing was written since the read (`Conflict`), because a transaction that holds a lock does not wait for another one:
two such transactions would deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from catalog.objects import ObjectId


class TableLock:
    """A lock with shared and exclusive modes, granted in order of arrival. Cancel safety: a waiter leaves the queue."""

    __slots__ = ("_holders", "_waiting")

    def __init__(self) -> None:
        self._holders = 0  # -1: held exclusively
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @property
    def idle(self) -> bool:
        return self._holders == 0 and not self._waiting

    async def acquire(self, *, exclusive: bool) -> None:
        if not self._waiting and self._admits(exclusive=exclusive):
            self._take(exclusive=exclusive)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((exclusive, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._waiting.remove((exclusive, turn))
                self._grant()
            raise

    def release(self) -> None:
        self._holders = max(self._holders - 1, 0)  # both -1 (exclusive) and 1 become 0
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            exclusive, turn = self._waiting[0]
            if not self._admits(exclusive=exclusive):
                return
            self._waiting.popleft()
            self._take(exclusive=exclusive)
            turn.set_result(None)

    def _admits(self, *, exclusive: bool) -> bool:
        return self._holders == 0 or (self._holders > 0 and not exclusive)

    def _take(self, *, exclusive: bool) -> None:
        self._holders = -1 if exclusive else self._holders + 1


class TableLocks:
    """One lock per table, which exists while it is in use."""

    def __init__(self) -> None:
        self._locks: dict[ObjectId, TableLock] = {}

    async def acquire(self, tables: Iterable[ObjectId], *, exclusive: bool) -> tuple[ObjectId, ...]:
        """Locks all tables, in an order that is the same for all callers. Cancel safety: no lock is kept."""
        taken: list[ObjectId] = []
        try:
            for table in sorted(set(tables)):
                await self._locks.setdefault(table, TableLock()).acquire(exclusive=exclusive)
                taken.append(table)
        except asyncio.CancelledError:
            self.release(taken)
            raise
        return tuple(taken)

    def release(self, tables: Iterable[ObjectId]) -> None:
        for table in tables:
            lock = self._locks[table]
            lock.release()
            if lock.idle:
                del self._locks[table]
