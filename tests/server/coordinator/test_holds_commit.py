"""Holds in the committer and on disk, tested without a server: shared transactions, failures, restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import holds
from catalog.holds import HoldPosition, Status
from catalog.ids import ObjectId, Timestamp
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.objects.holds import Hold
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.holds import Advance, Overdue
from server.runtime.metrics import Metrics
from tests.server.slow_engine import PassingEngine

PUBLIC = ObjectId("u2")


class Clock:
    """A clock in milliseconds that only the test advances."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


async def started(directory: Path, clock: Clock) -> Coordinator:
    coordinator = Coordinator(
        directory, engine=PassingEngine(), metrics=Metrics(), interval_s=0.01, system_tables={}, clock=clock
    )
    await coordinator.start()
    return coordinator


async def define(coordinator: Coordinator, *items: Item, starts: Mapping[ObjectId, Timestamp] | None = None) -> None:
    before: CatalogState = coordinator.state
    after = before
    for item in items:
        after = after.with_item(item)
    after = replace(after, version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after), history_starts=starts or {}))


def table(number: int) -> Table:
    return Table(ObjectId(f"u{number}"), PUBLIC, f"t{number}", (Column("a", "int4"),))


def hold(number: int, on: Table, max_lag_ms: int = 3_600_000) -> Hold:
    return Hold(ObjectId(f"u{number}"), PUBLIC, f"h{number}", (on.id,), max_lag_ms)


async def test_concurrent_advances_share_a_transaction(tmp_path: Path) -> None:
    coordinator = await started(tmp_path, Clock())
    held = [hold(100 + n, table(10)) for n in range(200)]
    await define(coordinator, table(10), *held)
    to = coordinator.latest_time()
    before = coordinator.store.transactions
    await asyncio.gather(*(coordinator.commit(Request(advances=(Advance(h.id, to),))) for h in held))
    # Compaction and the reservation of timestamps need transactions, too.
    assert coordinator.store.transactions - before <= 5
    assert set(coordinator.holds.positions.values()) == {HoldPosition(to)}
    assert holds.load(coordinator.store) == coordinator.holds.positions
    await coordinator.close()


async def test_a_refused_advance_does_not_affect_the_others(tmp_path: Path) -> None:
    coordinator = await started(tmp_path, Clock())
    held = [hold(100 + n, table(10)) for n in range(4)]
    await define(coordinator, table(10), *held)
    at, to = coordinator.holds.positions[held[0].id].at, coordinator.latest_time()
    wanted = [to, to + 10**9, to, 1]
    outcomes = await asyncio.gather(
        *(coordinator.commit(Request(advances=(Advance(h.id, t),))) for h, t in zip(held, wanted, strict=True)),
        return_exceptions=True,
    )
    assert [isinstance(outcome, PgError) for outcome in outcomes] == [False, True, False, True]
    assert [coordinator.holds.positions[h.id].at for h in held] == [to, at, to, at]
    await coordinator.close()


async def test_a_failed_transaction_moves_no_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    coordinator = await started(tmp_path, clock)
    on, held = table(10), hold(11, table(10))
    await define(coordinator, on, held)
    position = coordinator.holds.positions[held.id]
    clock.now += 60_000
    await coordinator.commit(Request())

    async def failing(act: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(coordinator.store, "transaction", failing)
        with pytest.raises(sqlite3.OperationalError):
            await coordinator.commit(Request(advances=(Advance(held.id, coordinator.latest_time()),)))
    assert coordinator.holds.positions[held.id] == position
    assert coordinator.frontiers.since(on.id) == position.at
    to = coordinator.latest_time()
    await coordinator.commit(Request(advances=(Advance(held.id, to),)))
    assert coordinator.frontiers.since(on.id) <= to == coordinator.holds.positions[held.id].at
    assert len(coordinator.frontiers.holders) == 1
    await coordinator.close()


async def test_holds_keep_their_times_after_hours_of_downtime(tmp_path: Path) -> None:
    clock = Clock()
    coordinator = await started(tmp_path, clock)
    kept, late = hold(11, table(10), 10_800_000), hold(12, table(10), 60_000)
    await define(coordinator, table(10), kept, late)
    at = coordinator.holds.positions[kept.id].at
    await coordinator.close()
    clock.now += 7_200_000
    coordinator = await started(tmp_path, clock)
    assert coordinator.holds.positions == {kept.id: HoldPosition(at), late.id: HoldPosition(at)}
    assert coordinator.frontiers.since(ObjectId("u10")) == at
    assert coordinator.latest_time() > at + 7_100_000
    for _ in range(20):  # rounds of the lag check: the two hours of downtime do not count yet
        await coordinator.frontiers.moved.wait()
    assert coordinator.holds.positions == {kept.id: HoldPosition(at), late.id: HoldPosition(at)}
    ((downtime,),) = coordinator.store.read("SELECT value FROM meta WHERE key = 'downtime'")
    assert 7_200_000 <= downtime <= 7_200_000 + 20_000
    clock.now += 120_000  # while the server runs
    while not coordinator.metrics.registry.get_sample_value("tidewire_holds_moved_by_max_lag_total"):
        await coordinator.frontiers.moved.wait()
    assert coordinator.holds.positions[late.id].status is Status.ADVANCED
    assert coordinator.holds.positions[late.id].at <= coordinator.latest_time() + 1 - downtime - 60_000
    assert coordinator.holds.positions[kept.id] == HoldPosition(at)
    await coordinator.close()


async def test_moves_of_overdue_holds_share_a_transaction(tmp_path: Path) -> None:
    clock = Clock()
    coordinator = await started(tmp_path, clock)
    held = [hold(100 + n, table(10)) for n in range(100)]
    await define(coordinator, table(10), *held)
    clock.now += 1_000
    to = (await coordinator.commit(Request())).time
    before = coordinator.store.transactions
    await coordinator.commit(Request(overdue=[Overdue(h.id, Timestamp(to)) for h in held]))
    assert coordinator.store.transactions - before <= 3
    assert set(coordinator.holds.positions.values()) == {HoldPosition(Timestamp(to), Status.ADVANCED)}
    await coordinator.close()
