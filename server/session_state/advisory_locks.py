"""The advisory locks of a session: some until they are unlocked, others until the end of the transaction.

A session may lock the same number several times, exclusively and shared. It holds one lock of the server for it, in the
strongest of these modes.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.locks import EXCLUSIVE, SHARED, Mode, Owner, TableLocks, Unavailable

LOCKS_MAX = 10_000  # per session


class Advisory(NamedTuple):
    """A lock that a session holds. `name`: the name of the lock in `TableLocks`."""

    name: str
    mode: Mode


def lock_name(database: str, numbers: tuple[int, ...]) -> str:
    """The name of the lock of a bigint or of two integers. No table or key has it."""
    return f"advisory {database} {numbers}"


def locked_numbers(name: str) -> tuple[str, tuple[int, ...]] | None:
    """The database and the numbers of a lock's name; None if it is the lock of a table or key."""
    database, opened, numbers = name.removeprefix("advisory ").rpartition(" (")
    if not name.startswith("advisory ") or not opened:
        return None
    return database, tuple(int(number) for number in numbers.strip("(),").split(","))


class AdvisoryLocks:
    """The advisory locks of one session, which is their `owner`."""

    def __init__(self, locks: TableLocks, owner: Owner) -> None:
        self._locks = locks
        self._owner = owner
        self._held: Counter[Advisory] = Counter()  # the number of unlocks after which each is free
        self._modes: dict[str, Mode] = {}  # the mode in which the session holds each lock of the server

    async def lock(self, lock: Advisory, timeout_s: float | None, until_end: dict[Advisory, None] | None) -> bool:
        """Locks a number. `until_end`: what the transaction has locked, for a lock until its end.

        False if `timeout_s` is 0 and another session holds it. PgError 40P01, 55P03 as `TableLocks.acquire`; 53200 if
        the session has too many. Cancel safety: the lock is not held.
        """
        known = self._modes.get(lock.name)
        if known is None and len(self._modes) >= LOCKS_MAX:
            raise PgError(
                SqlState.OUT_OF_MEMORY,
                "out of shared memory",
                detail=f"A session can hold at most {LOCKS_MAX} advisory locks.",
                hint="Unlock those that are not needed any more with pg_advisory_unlock().",
            )
        if known not in (lock.mode, EXCLUSIVE):
            try:
                await self._locks.acquire([lock.name], lock.mode, self._owner, timeout_s)
            except Unavailable:
                return False
            self._modes[lock.name] = lock.mode
        if until_end is None:
            self._held[lock] += 1
        else:
            until_end[lock] = None
        return True

    def unlock(self, lock: Advisory, until_end: dict[Advisory, None]) -> bool:
        """Undoes one `lock` without `until_end`. False if there is none."""
        if not self._held[lock]:
            del self._held[lock]
            return False
        self._held[lock] -= 1
        if not self._held[lock]:
            del self._held[lock]
            self._weaken(lock.name, until_end)
        return True

    def unlock_all(self, until_end: dict[Advisory, None]) -> None:
        """Undoes every `lock` without `until_end`."""
        names = {lock.name for lock in self._held}
        self._held.clear()
        for name in names:
            self._weaken(name, until_end)

    def unlock_after(self, count: int, until_end: dict[Advisory, None]) -> None:
        """Undoes each `lock` with `until_end` but the first `count`."""
        while len(until_end) > count:
            lock, _ = until_end.popitem()
            self._weaken(lock.name, until_end)

    def _weaken(self, name: str, until_end: dict[Advisory, None]) -> None:
        """Releases a lock of the server, or has others share it, as what is left of it allows."""

        def is_needed(mode: Mode) -> bool:
            lock = Advisory(name, mode)
            return lock in self._held or lock in until_end

        if is_needed(EXCLUSIVE):
            return
        if not is_needed(SHARED):
            del self._modes[name]
            self._locks.release([name], self._owner)
        elif self._modes[name] is EXCLUSIVE:
            self._modes[name] = SHARED
            self._locks.share(name)
