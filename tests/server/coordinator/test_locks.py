"""Table locks: compatibility, the order of waiters, and cancellation."""

from __future__ import annotations

import asyncio

from catalog.objects import ObjectId
from server.coordinator.locks import ADD, EXCLUSIVE, TableLock, TableLocks

A, B = ObjectId("u1"), ObjectId("u2")


async def settle() -> None:
    """Yields to the event loop until every task is blocked."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_shared_locks_are_compatible_and_waiters_are_served_in_order() -> None:
    lock = TableLock()
    await lock.acquire(ADD)
    await lock.acquire(ADD)
    writer = asyncio.create_task(lock.acquire(EXCLUSIVE))
    late_reader = asyncio.create_task(lock.acquire(ADD))
    await settle()
    assert not writer.done()
    assert not late_reader.done(), "who came after the writer must not overtake it"
    lock.release()
    lock.release()
    await writer
    await settle()
    assert not late_reader.done()
    lock.release()
    await late_reader
    lock.release()
    assert lock.idle


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    lock = TableLock()
    await lock.acquire(EXCLUSIVE)
    gone = asyncio.create_task(lock.acquire(EXCLUSIVE))
    waiting = asyncio.create_task(lock.acquire(ADD))
    await settle()
    gone.cancel()
    await settle()
    lock.release()
    await waiting
    lock.release()
    assert lock.idle


async def test_a_waiter_cancelled_after_its_grant_releases_the_lock() -> None:
    lock = TableLock()
    await lock.acquire(EXCLUSIVE)
    task = asyncio.create_task(lock.acquire(EXCLUSIVE))
    await settle()
    lock.release()  # the lock is granted, but the task has not run yet
    task.cancel()
    await settle()
    assert task.cancelled()
    assert lock.idle


async def test_locks_are_acquired_in_one_order_and_removed_when_idle() -> None:
    locks = TableLocks()
    first = await locks.acquire([B, A], EXCLUSIVE)
    assert first == (A, B)
    second = asyncio.create_task(locks.acquire([A, B], EXCLUSIVE))
    third = asyncio.create_task(locks.acquire([B], ADD))
    await settle()
    second.cancel()
    await settle()
    locks.release(first)
    assert await third == (B,)
    locks.release((B,))
    assert not locks._locks


async def test_locks_that_need_no_waiting_are_acquired_at_once() -> None:
    locks = TableLocks()
    first = locks.acquire_at_once([A, B], ADD)
    assert first == (A, B)
    assert locks.acquire_at_once([B], ADD) == (B,)
    assert locks.acquire_at_once([B], EXCLUSIVE) is None
    waiting = asyncio.create_task(locks.acquire([B], EXCLUSIVE))
    await settle()
    assert locks.acquire_at_once([A, B], ADD) is None, "would overtake"
    locks.release(first)
    locks.release((B,))
    assert await waiting == (B,)
    assert locks.acquire_at_once([A, B], ADD) is None, "and keeps no lock"
    locks.release((B,))
    assert not locks._locks
