"""Table locks, which make writers wait for each other in order of arrival, and the locks of advisory functions.

An UPDATE reads, waits for Spark, and commits. A write in between could cause a conflict, so a lock makes other writers
wait. There are three kinds of writers:

- A statement that only adds rows holds its table's lock in the mode ADD during its commit.
- A statement that reads only rows with given keys holds the lock in the mode of the keys' column, and an exclusive lock
  of each key. The mode of the primary key is ROWS if the statement adds no rows, and KEYS otherwise.
- Any other statement that reads holds the lock exclusively.

Writers with the same mode, except the exclusive one, do not wait for each other. Neither do those in the modes ROWS and
ADD, because a row that is added has none of the primary keys of rows that exist, nor those in the modes ROWS and KEYS,
whose keys are locked. Locks provide fairness only.
Correctness comes from the committer's check that nothing that was read was written since (`Conflict`).

Each statement of a transaction may add locks to those of the earlier statements. A wait that would never end, because
a session waits for one that waits for it, is refused before it begins.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_conflicts import Keys

Mode = str
ADD: Mode = "add"
ROWS: Mode = "rows"
KEYS: Mode = "keys"
SHARED: Mode = "shared"
EXCLUSIVE: Mode = "exclusive"
OBSERVED_MAX = 20_000
Owner = Hashable
"""The holder of locks: a session, which has one transaction at a time."""

_TOGETHER = (frozenset((ROWS, ADD)), frozenset((ROWS, KEYS)))
"""The pairs of different modes that do not exclude each other."""


def _exclude(first: Mode, second: Mode) -> bool:
    """Whether an owner that wants one mode waits for a holder of the other mode."""
    if first == second:
        return first == EXCLUSIVE
    return frozenset((first, second)) not in _TOGETHER


class Unavailable(Exception):
    """A lock is held by another session, and the caller does not wait."""


class Observed(NamedTuple):
    """A lock that an owner holds (`granted`) or waits for. `lock`: its name."""

    lock: str
    mode: Mode
    owner: Owner
    granted: bool


@dataclass(slots=True, eq=False)
class _Waiter:
    """An owner that waits for a lock.

    `extends`: it holds the lock in another mode already. It waits before all that do not.
    """

    mode: Mode
    owner: Owner
    extends: bool
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class TableLock:
    """A lock with modes, granted in order of arrival. Cancel safety: a waiter leaves the queue.

    When the first waiter gets it, the other waiters in front of the first exclusive one get it, too, unless a holder
    excludes their modes.
    """

    __slots__ = ("_counts", "_waiting", "holders")

    def __init__(self) -> None:
        self.holders: dict[Owner, set[Mode]] = {}
        self._counts: dict[Mode, int] = {}  # the number of holders in each mode
        self._waiting: deque[_Waiter] = deque()

    @property
    def idle(self) -> bool:
        return not self.holders and not self._waiting

    def observed(self, name: str) -> list[Observed]:
        """Returns its holders, with one of their modes, and those that wait for it."""
        held = [
            Observed(name, EXCLUSIVE if EXCLUSIVE in modes else min(modes), owner, True)
            for owner, modes in self.holders.items()
        ]
        return held + [Observed(name, waiter.mode, waiter.owner, False) for waiter in self._waiting]

    def awaited(self, mode: Mode, owner: Owner) -> Iterator[Owner]:
        """The holders for which an owner waits, or would wait: they exclude its mode, or that of a waiter before it."""
        modes = {mode}
        if owner not in self.holders:
            modes.update(waiter.mode for waiter in itertools.takewhile(lambda each: each.owner != owner, self._waiting))
        for holder, held in self.holders.items():
            if holder != owner and any(_exclude(one, other) for one in held for other in modes):
                yield holder

    def covers(self, mode: Mode, owner: Owner) -> bool:
        """Whether the owner holds the lock in a mode that includes this one."""
        return not {mode, EXCLUSIVE}.isdisjoint(self.holders.get(owner, ()))

    def acquire_at_once(self, mode: Mode, owner: Owner) -> bool:
        """Whether the lock was granted, because nobody waits for it and no holder excludes the mode."""
        return not self._waiting and self.extend_at_once(mode, owner)

    def extend_at_once(self, mode: Mode, owner: Owner) -> bool:
        """Whether the lock was granted, because no holder excludes the mode. The owner may hold it in other modes."""
        own = self.holders.get(owner, ())
        for held, count in self._counts.items():
            if _exclude(held, mode) and count > (held in own):
                return False
        self.holders.setdefault(owner, set()).add(mode)
        self._counts[mode] = self._counts.get(mode, 0) + 1
        return True

    async def wait(self, mode: Mode, owner: Owner) -> None:
        """Waits for the lock. An owner that holds it in other modes waits for the holders that exclude its mode only.

        Call it after `acquire_at_once`, or `extend_at_once`, has returned False.
        """
        waiter = _Waiter(mode, owner, owner in self.holders)
        if waiter.extends:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if not waiter.turn.done() or waiter.turn.cancelled():
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                self._grant()
            elif not waiter.extends:
                self.release(owner)
            raise

    def share(self) -> None:
        """Changes the mode of the only holder from EXCLUSIVE to SHARED."""
        (owner,) = self.holders
        self.holders[owner], self._counts = {SHARED}, {SHARED: 1}
        self._grant()

    def release(self, owner: Owner) -> None:
        for mode in self.holders.pop(owner):
            self._counts[mode] -= 1
            if not self._counts[mode]:
                del self._counts[mode]
        self._grant()

    def _grant(self) -> None:
        """Grants the lock to those whose turn it is. Removes cancelled waiters, whose tasks may not have run yet."""
        for waiter in list(itertools.takewhile(lambda each: each.extends, self._waiting)):
            if waiter.turn.cancelled():
                self._waiting.remove(waiter)
            elif self.extend_at_once(waiter.mode, waiter.owner):
                self._waiting.remove(waiter)
                waiter.turn.set_result(None)
        if self._waiting and self._waiting[0].extends:
            return
        waiting, self._waiting = self._waiting, deque()
        is_granted = False
        while waiting:
            waiter = waiting.popleft()
            if waiter.turn.cancelled():
                continue
            if self.extend_at_once(waiter.mode, waiter.owner):
                waiter.turn.set_result(None)
                is_granted = True
                continue
            self._waiting.append(waiter)
            if not is_granted or EXCLUSIVE in (waiter.mode, *self._counts):
                break
        self._waiting.extend(waiting)


class TableLocks:
    """One lock per table, key and advisory number, which exist while they are in use.

    `timeout_s`: how long to wait for a lock, None: without a limit, 0: not at all.
    """

    def __init__(self) -> None:
        self._locks: dict[str, TableLock] = {}
        self._keys: dict[str, dict[str, Any]] = {}  # the values of the keys with a lock, by column and name of the lock
        self._waits: dict[Owner, tuple[TableLock, Mode]] = {}

    async def acquire(
        self, tables: Iterable[str], mode: Mode, owner: Owner, timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """Locks all tables. Returns those of the locks that the owner did not hold, for `release`.

        Cancel safety: no new lock is kept. PgError 40P01 if the owner would wait for itself, 55P03 after `timeout_s`.
        Raises Unavailable if that is 0 and a lock would have to wait.
        """
        return await self._acquire([(table, mode) for table in sorted(set(tables))], owner, timeout_s)

    def acquire_at_once(self, tables: Iterable[ObjectId], mode: Mode, owner: Owner) -> tuple[str, ...] | None:
        """Locks all tables if that needs no waiting, for an owner without any. Returns them for `release`."""
        taken: list[str] = []
        for table in tables:
            if not self._lock(table).acquire_at_once(mode, owner):
                self.release(taken, owner)
                return None
            taken.append(table)
        return tuple(taken)

    async def acquire_keys(
        self, table: ObjectId, keys: Keys, owner: Owner, timeout_s: float | None = None, mode: Mode | None = None
    ) -> tuple[str, ...]:
        """Locks keys of a table, as `acquire`. `mode`: ROWS or KEYS if their column is the table's primary key."""
        column = f"{table} column {keys.column}"
        values = {f"{column} {value!r}": value for value in keys.values}
        wanted = [(table, mode or f"column {keys.column}"), *((name, EXCLUSIVE) for name in sorted(values))]
        return await self._acquire(wanted, owner, timeout_s, column, values)

    def keys_of_others(self, table: ObjectId, column: int, owner: Owner) -> frozenset[Any]:
        """Returns the keys, values of a column of a table, that other owners have locked."""
        known = self._keys.get(f"{table} column {column}", {})
        return frozenset(value for name, value in known.items() if self._locks[name].holders.keys() != {owner})

    async def _acquire(
        self,
        wanted: Iterable[tuple[str, Mode]],
        owner: Owner,
        timeout_s: float | None,
        column: str = "",
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        """`wanted`: in an order that is the same for all callers, so that single statements cause no deadlock.

        `values`: the keys, values of `column`, by the names of their locks.
        """
        taken: list[str] = []
        try:
            for name, mode in wanted:
                lock = self._lock(name)
                if lock.covers(mode, owner):
                    continue
                is_held = owner in lock.holders
                if not (lock.extend_at_once(mode, owner) if is_held else lock.acquire_at_once(mode, owner)):
                    await self._wait(lock, mode, owner, timeout_s)
                if not is_held:
                    taken.append(name)
                if name in values:  # at once, since the owner may wait for its next key
                    self._keys.setdefault(column, {})[name] = values[name]
        except BaseException:
            self.release(taken, owner)
            raise
        return tuple(taken)

    async def _wait(self, lock: TableLock, mode: Mode, owner: Owner, timeout_s: float | None) -> None:
        if timeout_s == 0:
            raise Unavailable
        if self._leads_to(owner, lock, mode):
            raise PgError(
                SqlState.DEADLOCK_DETECTED,
                "deadlock detected",
                detail="The session would wait for a lock of another session, which waits for this one.",
                hint="The transaction might succeed if retried.",
            )
        self._waits[owner] = lock, mode
        try:
            async with asyncio.timeout(timeout_s):
                await lock.wait(mode, owner)
        except TimeoutError:
            raise PgError(SqlState.LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout") from None
        finally:
            del self._waits[owner]

    def _leads_to(self, owner: Owner, lock: TableLock, mode: Mode) -> bool:
        """Whether the wait of this owner for a lock would be part of a cycle."""
        seen = {owner}
        waits = [(owner, lock, mode)]
        while waits:
            waiter, awaited, wanted = waits.pop()
            for holder in awaited.awaited(wanted, waiter):
                if holder == owner:
                    return True
                if holder not in seen and holder in self._waits:
                    seen.add(holder)
                    waits.append((holder, *self._waits[holder]))
        return False

    def is_waiting(self, owner: Owner) -> bool:
        return owner in self._waits

    def observed(self) -> list[Observed]:
        """Returns the locks that are held and those that are waited for, by lock in order of arrival.

        54000 if there are more than OBSERVED_MAX.
        """
        found = [each for name, lock in self._locks.items() for each in lock.observed(name)]
        if len(found) > OBSERVED_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "too many locks",
                detail=f"There are {len(found)} locks. At most {OBSERVED_MAX} can be shown.",
            )
        return found

    def _lock(self, name: str) -> TableLock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = TableLock()
        return lock

    def share(self, name: str) -> None:
        """Changes the mode of an owner's lock from EXCLUSIVE to SHARED."""
        self._locks[name].share()

    def release(self, names: Iterable[str], owner: Owner) -> None:
        for name in names:
            lock = self._locks[name]
            lock.release(owner)
            if lock.idle:
                del self._locks[name]
                self._forget_key(name)

    def _forget_key(self, name: str) -> None:
        """Removes a key that has no lock any more, if the name is that of a key."""
        column = " ".join(name.split(" ", 3)[:3])
        known = self._keys.get(column)
        if known is not None:
            known.pop(name, None)
            if not known:
                del self._keys[column]
