"""System tables as collections: they have a history while they are subscribed to, and holds keep it."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from catalog.ids import ObjectId, Timestamp
from server.coordinator.system_table_history import SystemTableHistory, SystemTableRows
from server.timeline.frontiers import RETENTION_MS, Frontiers, NotReadable

A, B = ObjectId("s1"), ObjectId("s2")


class World:
    """Two system tables of numbers. `asked` counts how often their rows are computed."""

    def __init__(self) -> None:
        self.values: dict[ObjectId, list[int]] = {A: [1], B: [1]}
        self.revisions: dict[ObjectId, int] = {A: 0, B: 0}
        self.asked = 0
        self.frontiers = Frontiers()
        self.frontiers.tables_upper = Timestamp(10_000)
        self.following = SystemTableHistory(
            self.frontiers,
            {id: SystemTableRows(partial(self._rows, id), partial(self.revisions.__getitem__, id)) for id in (A, B)},
        )

    def _rows(self, id: ObjectId) -> pa.Table:
        self.asked += 1
        return pa.table({"c0": self.values[id]})

    def set(self, id: ObjectId, *values: int) -> None:
        self.values[id] = list(values)
        self.revisions[id] += 1

    def commit(self, time: int) -> None:
        self.frontiers.tables_upper = Timestamp(time + 1)
        self.following.closed(Timestamp(time))

    def at(self, id: ObjectId, time: int) -> list[int]:
        values: list[int] = self.following.rows(id, time)["c0"].to_pylist()
        return values


def test_rows_are_read_as_of_past_times() -> None:
    world = World()
    world.following.follow([A])
    world.frontiers.hold([A], 9_999)
    world.set(A, 1, 2)
    world.commit(10_100)
    world.commit(10_200)
    world.set(A, 3)
    world.commit(10_300)
    assert [world.at(A, t) for t in (9_999, 10_099, 10_100, 10_299, 10_300)] == [[1], [1], [1, 2], [1, 2], [3]]
    assert world.following.times(A, 9_999, 10_301) == [10_100, 10_300]
    assert world.following.times(A, 10_101, 10_300) == []


def test_unchanged_rows_are_not_computed_again() -> None:
    world = World()
    world.following.follow([A])
    for time in range(10_100, 10_200):
        world.commit(time)
    assert world.asked == 1
    world.set(A, 1)  # the same as before
    world.commit(10_300)
    assert world.following.times(A, 0, 20_000) == []


def test_tables_without_subscribers_are_not_computed() -> None:
    world = World()
    world.set(A, 2)
    world.commit(10_100)
    assert world.asked == 0
    assert A not in world.following
    assert A not in world.frontiers.floors


def test_history_begins_with_the_first_subscriber() -> None:
    world = World()
    world.following.follow([A])
    with pytest.raises(NotReadable):
        world.frontiers.hold([A], 9_998)
    world.frontiers.hold([A], 9_999).release()


def test_a_hold_keeps_history_until_it_is_released() -> None:
    world = World()
    world.following.follow([A])
    holder = world.frontiers.hold([A], 10_100)
    for time in range(10_100, 20_000, 100):
        world.set(A, time)
        world.commit(time)
    assert world.at(A, 10_150) == [10_100]
    holder.release()
    world.set(A, 0)
    world.commit(20_000)
    assert world.frontiers.since(A) == 20_000 - RETENTION_MS
    kept = world.following.times(A, 0, 30_000)
    assert kept[0] <= world.frontiers.since(A) + 100
    assert len(kept) <= RETENTION_MS // 100 + 1
    assert world.at(A, world.frontiers.since(A)) == [19_000]


def test_history_ends_with_the_last_subscriber() -> None:
    world = World()
    first, second = world.following.follow([A, B]), world.following.follow([A])
    first()
    first()
    assert (A in world.following, B in world.following) == (True, False)
    second()
    assert A not in world.following
    assert A not in world.frontiers.floors
