"""Table locks: compatibility, the order of waiters, and cancellation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError
from server.coordinator.key_conflicts import Keys
from server.coordinator.locks import ADD, EXCLUSIVE, KEYS, ROWS, TableLocks, Unavailable
from tests.examples import examples

A, B = ObjectId("u1"), ObjectId("u2")


async def settle() -> None:
    """Yields to the event loop until every task is blocked."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_shared_locks_are_compatible_and_waiters_are_served_in_order() -> None:
    locks = TableLocks()
    for owner in ("first", "second"):
        await locks.acquire([A], ADD, owner)
    writer = asyncio.create_task(locks.acquire([A], EXCLUSIVE, "writer"))
    late_reader = asyncio.create_task(locks.acquire([A], ADD, "late"))
    await settle()
    assert not writer.done()
    assert not late_reader.done(), "who came after the writer must not overtake it"
    locks.release([A], "first")
    locks.release([A], "second")
    await writer
    await settle()
    assert not late_reader.done()
    locks.release([A], "writer")
    await late_reader
    locks.release([A], "late")
    assert not locks._locks


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    locks = TableLocks()
    await locks.acquire([A], EXCLUSIVE, "first")
    gone = asyncio.create_task(locks.acquire([A], EXCLUSIVE, "gone"))
    waiting = asyncio.create_task(locks.acquire([A], ADD, "waiting"))
    await settle()
    gone.cancel()
    await settle()
    locks.release([A], "first")
    await waiting
    locks.release([A], "waiting")
    assert not locks._locks
    assert not locks._waits


@pytest.mark.parametrize("mode", [ADD, EXCLUSIVE])
async def test_waiters_cancelled_at_the_same_time_leave_the_queue(mode: str) -> None:
    """A lock is granted while the tasks of cancelled waiters have not run yet."""
    locks = TableLocks()
    await locks.acquire([A], EXCLUSIVE, "first")
    gone = [asyncio.create_task(locks.acquire([A], mode, f"gone {number}")) for number in range(3)]
    waiting = asyncio.create_task(locks.acquire([A], mode, "waiting"))
    await settle()
    for task in gone:
        task.cancel()
    locks.release([A], "first")
    await settle()
    assert all(task.cancelled() for task in gone)
    await waiting
    locks.release([A], "waiting")
    assert not locks._locks
    assert not locks._waits


async def test_a_waiter_cancelled_after_its_grant_releases_the_lock() -> None:
    locks = TableLocks()
    await locks.acquire([A], EXCLUSIVE, "first")
    task = asyncio.create_task(locks.acquire([A], EXCLUSIVE, "second"))
    await settle()
    locks.release([A], "first")  # the lock is granted, but the task has not run yet
    task.cancel()
    await settle()
    assert task.cancelled()
    assert await locks.acquire([A], EXCLUSIVE, "third") == (A,)


async def test_an_owner_extends_its_locks() -> None:
    locks = TableLocks()
    key = Keys(0, frozenset((1,)))
    owned = await locks.acquire_keys(A, key, "owner")
    assert await locks.acquire_keys(A, key, "owner") == (), "it has them"
    other = await locks.acquire_keys(A, Keys(0, frozenset((2,))), "other")
    late = asyncio.create_task(locks.acquire([A], ADD, "late"))
    extending = asyncio.create_task(locks.acquire([A], EXCLUSIVE, "owner"))
    await settle()
    assert not extending.done()
    with pytest.raises(PgError, match="deadlock detected"):
        await locks.acquire([A], EXCLUSIVE, "other")
    locks.release(other, "other")
    assert await extending == (), "before those who came earlier"
    await settle()
    assert not late.done()
    assert await locks.acquire_keys(A, Keys(1, frozenset((2,))), "owner") == (f"{A} column 1 2",)
    locks.release([*owned, f"{A} column 1 2"], "owner")
    locks.release(await late, "late")
    assert not locks._locks


async def test_keys_of_a_primary_key_do_not_exclude_rows_that_are_added() -> None:
    locks = TableLocks()
    first = await locks.acquire_keys(A, Keys(0, frozenset((1, "a b"))), "first", None, ROWS)
    adding = await locks.acquire([A], ADD, "adding")
    second = await locks.acquire_keys(A, Keys(0, frozenset((2,))), "second", None, ROWS)
    assert locks.keys_of_others(A, 0, "first") == {2}
    assert locks.keys_of_others(A, 0, "second") == {1, "a b"}
    assert locks.keys_of_others(A, 1, "second") == frozenset()
    with pytest.raises(Unavailable):
        await locks.acquire_keys(A, Keys(0, frozenset((1, 3))), "third", 0, ROWS)
    assert locks.keys_of_others(A, 0, "second") == {1, "a b"}
    with pytest.raises(Unavailable):
        await locks.acquire_keys(A, Keys(0, frozenset((5,))), "third", 0, KEYS)
    assert await locks.acquire([A], ADD, "first") == (), "it holds the lock already, and ADD does not exclude ROWS"
    for owned, owner in ((first, "first"), (adding, "adding"), (second, "second")):
        locks.release(owned, owner)
    assert not locks._locks
    assert not locks._keys


async def test_the_keys_of_an_owner_that_waits_for_another_key_are_known() -> None:
    locks = TableLocks()
    first = await locks.acquire_keys(A, Keys(0, frozenset((2,))), "first", None, ROWS)
    second = asyncio.create_task(locks.acquire_keys(A, Keys(0, frozenset((1, 2))), "second", None, ROWS))
    await settle()
    assert locks.keys_of_others(A, 0, "third") == {1, 2}
    second.cancel()
    await settle()
    assert locks.keys_of_others(A, 0, "third") == {2}
    locks.release(first, "first")
    assert not locks._locks
    assert not locks._keys


async def test_a_cycle_of_waits_is_refused_where_it_would_close() -> None:
    locks = TableLocks()
    tables = [ObjectId(f"u{number}") for number in range(5)]
    for number, table in enumerate(tables):
        await locks.acquire([table], EXCLUSIVE, number)
    waits = [asyncio.create_task(locks.acquire([table], EXCLUSIVE, number)) for number, table in enumerate(tables[1:])]
    await settle()
    with pytest.raises(PgError) as refused:
        await locks.acquire([ObjectId("u9"), tables[0]], EXCLUSIVE, 4)
    assert refused.value.sqlstate == "40P01"
    assert locks.acquire_at_once([ObjectId("u9")], EXCLUSIVE, "any") is not None, "nothing new is kept"
    for number in (4, 3, 2, 1, 0):
        locks.release([tables[number]], number)
        if number:
            locks.release(await waits[number - 1], number - 1)
    locks.release([ObjectId("u9")], "any")
    assert not locks._locks


Step = tuple[int, int, str | None]
"""An owner, a table, and the mode in which the owner locks it; None: the owner releases its locks."""


class Owners:
    """Owners that lock two tables one after the other. An owner that waits does nothing else."""

    def __init__(self, *, finds_deadlocks: bool) -> None:
        self._locks = TableLocks()
        if not finds_deadlocks:
            self._locks._leads_to = lambda *_: False  # type: ignore[method-assign]
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._taken: dict[int, list[str]] = {}

    async def perform(self, step: Step) -> bool:
        """Returns whether a deadlock was found."""
        owner, table, mode = step
        if owner in self.waiting:
            return False
        if mode is None:
            self._locks.release(self._taken.pop(owner, []), owner)
            await settle()
            return False
        self._tasks[owner] = task = asyncio.create_task(self._acquire((A, B)[table], mode, owner))
        await settle()
        return task.done() and isinstance(task.exception(), PgError)

    async def _acquire(self, table: str, mode: str, owner: int) -> None:
        self._taken.setdefault(owner, []).extend(await self._locks.acquire([table], mode, owner))

    @property
    def waiting(self) -> set[int]:
        return {owner for owner, task in self._tasks.items() if not task.done()}

    async def end(self) -> set[int]:
        """Releases the locks of those that do not wait, until all others do. Returns these."""
        while free := self._taken.keys() - self.waiting:
            for owner in free:
                await self.perform((owner, 0, None))
        stuck = self.waiting
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stuck


@examples(4000)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([ADD, ROWS, KEYS, EXCLUSIVE, "other", None])),
        min_size=5,
        max_size=14,
    )
)
@pytest.mark.long
async def test_exactly_the_waits_that_never_end_are_refused(steps: list[Step]) -> None:
    owners = Owners(finds_deadlocks=True)
    refused = None
    for number, step in enumerate(steps):
        if await owners.perform(step):
            refused = number
            break
    assert not await owners.end()
    if refused is not None:
        without = Owners(finds_deadlocks=False)
        for step in steps[: refused + 1]:
            await without.perform(step)
        assert steps[refused][0] in await without.end()


async def test_locks_are_acquired_in_one_order_and_removed_when_idle() -> None:
    locks = TableLocks()
    first = await locks.acquire([B, A], EXCLUSIVE, 1)
    assert first == (A, B)
    second = asyncio.create_task(locks.acquire([A, B], EXCLUSIVE, 2))
    third = asyncio.create_task(locks.acquire([B], ADD, 3))
    await settle()
    second.cancel()
    await settle()
    locks.release(first, 1)
    assert await third == (B,)
    locks.release((B,), 3)
    assert not locks._locks


async def test_locks_that_need_no_waiting_are_acquired_at_once() -> None:
    locks = TableLocks()
    first = locks.acquire_at_once([A, B], ADD, 1)
    assert first == (A, B)
    assert locks.acquire_at_once([B], ADD, 2) == (B,)
    assert locks.acquire_at_once([B], EXCLUSIVE, 3) is None
    waiting = asyncio.create_task(locks.acquire([B], EXCLUSIVE, 4))
    await settle()
    assert locks.acquire_at_once([A, B], ADD, 5) is None, "would overtake"
    locks.release(first, 1)
    locks.release((B,), 2)
    assert await waiting == (B,)
    assert locks.acquire_at_once([A, B], ADD, 5) is None, "and keeps no lock"
    locks.release((B,), 4)
    assert not locks._locks
