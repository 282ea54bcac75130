"""The rules for moving holds, tested without a server. Invariant: held times stay readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.drops import without_item
from catalog.holds import HoldPosition, Status
from catalog.ids import ObjectId, Timestamp
from catalog.objects.columns import Column
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError
from server.coordinator.holds import Advance, Holds, Moves, Overdue
from server.timeline.frontiers import RETENTION_MS, Frontiers

DB, PUBLIC = Database(ObjectId("u1"), "d"), Schema(ObjectId("u2"), ObjectId("u1"), "s")
T, U, I = ObjectId("u3"), ObjectId("u4"), ObjectId("u5")
ITEMS = (
    Table(T, PUBLIC.id, "t", (Column("a", "int4"),)),
    Table(U, PUBLIC.id, "u", (Column("a", "int4"),)),
    Index(I, PUBLIC.id, "i", T, ("a",)),
)
START = 100_000


class World:
    """Two tables, an index on the first, and the holds that a test creates."""

    def __init__(self) -> None:
        self.frontiers = Frontiers()
        self.frontiers.tables_upper = Timestamp(START)
        self.frontiers.created(T, Timestamp(0), None)
        self.frontiers.created(U, Timestamp(0), None)
        self.frontiers.index_created(I, T, Timestamp(0), None)
        self.holds = Holds(self.frontiers)
        self.state = CatalogState({DB.id: DB}, {PUBLIC.id: PUBLIC}, {i.id: i for i in ITEMS}, next_id=10)

    def create(self, on: tuple[ObjectId, ...], at: int, max_lag_ms: int = 3_600_000) -> ObjectId:
        self.holds.check(self.state, on, at, {})
        id, state = self.state.new_id()
        hold = Hold(id, PUBLIC.id, f"h{id}", on, max_lag_ms)
        self.state = state.with_item(hold)
        self.holds.created(hold, HoldPosition(Timestamp(at)))
        return id

    def drop(self, id: ObjectId) -> None:
        hold = self.state.items[id]
        assert isinstance(hold, Hold)
        self.state = without_item(self.state, id)
        self.holds.dropped(hold)

    def advance(self, id: ObjectId, to: int | None) -> HoldPosition:
        """Returns the old position."""
        moves = Moves(self.holds)
        old = moves.advance(self.state, Advance(id, to))
        moves.commit()
        return old

    def pass_time(self, ms: int) -> None:
        self.frontiers.tables_upper = Timestamp(self.frontiers.tables_upper + ms)

    def at(self, id: ObjectId) -> int:
        return self.holds.positions[id].at


def test_a_hold_moves_back_only_under_another_hold() -> None:
    world = World()
    ahead, behind = world.create((T,), START - 500), world.create((T,), START - 500)
    world.pass_time(50_000)
    world.advance(ahead, START + 20_000)
    world.advance(ahead, START + 10_000)  # allowed, because `behind` still holds this time
    world.advance(behind, START + 30_000)
    with pytest.raises(PgError, match="is before the read frontier") as refused:
        world.advance(behind, START)
    assert refused.value.sqlstate == "22023"
    assert refused.value.detail is not None
    assert str(START + 10_000) in refused.value.detail, "the least that is allowed"
    assert world.at(behind) == START + 30_000
    world.advance(behind, START + 10_000)
    assert world.frontiers.since(T) == START + 10_000


def test_a_hold_stays_after_the_read_frontier_of_each_object() -> None:
    world = World()
    both, one = world.create((T, U), START - 500), world.create((T,), START - 500)
    world.pass_time(50_000)
    world.advance(both, START + 20_000)
    with pytest.raises(PgError, match=r'read frontier of "d\.s\.u"'):
        world.advance(both, START)
    assert world.at(one) == START - 500


def test_moves_of_one_group_commit_are_decided_in_order() -> None:
    """When two sessions advance one hold, the second move is checked against the position that the first has set."""
    world = World()
    hold = world.create((T,), START - 500)
    world.pass_time(50_000)
    moves = Moves(world.holds)
    moves.advance(world.state, Advance(hold, START + 20_000))
    with pytest.raises(PgError, match="before the read frontier"):
        moves.advance(world.state, Advance(hold, START + 10_000))
    moves.advance(world.state, Advance(hold, START + 30_000))
    assert world.frontiers.since(T) == START - 500, "nothing is let go before it is on disk"
    moves.commit()
    assert world.at(hold) == world.frontiers.since(T) == START + 30_000


def test_rolled_back_moves_change_nothing() -> None:
    world = World()
    hold = world.create((T,), START - 500)
    world.pass_time(50_000)
    moves = Moves(world.holds)
    moves.advance(world.state, Advance(hold, START + 20_000))
    moves.roll_back()
    assert world.at(hold) == world.frontiers.since(T) == START - 500
    world.drop(hold)
    assert not world.frontiers.holders


def test_an_overdue_hold_moves_to_the_write_frontier_minus_max_lag() -> None:
    world = World()
    late, fine = world.create((T, U), START - 500, 10_000), world.create((U,), START - 500)
    world.pass_time(9_500)
    assert world.holds.overdue(world.state, 10**9, 0) == []
    world.pass_time(1)
    (overdue,) = world.holds.overdue(world.state, 10**9, 0)
    assert overdue == Overdue(late, Timestamp(START - 499))
    moves = Moves(world.holds)
    moves.advance_overdue(world.state, overdue)
    moves.commit()
    assert world.holds.positions[late] == HoldPosition(Timestamp(START - 499), Status.ADVANCED)
    assert world.at(fine) == START - 500
    assert world.advance(late, START) == HoldPosition(Timestamp(START - 499), Status.ADVANCED)
    assert world.holds.positions[late].status is Status.OK


def test_a_hold_that_its_owner_advances_first_is_not_moved() -> None:
    world = World()
    hold = world.create((T,), START - 500, 10_000)
    world.pass_time(20_000)
    (overdue,) = world.holds.overdue(world.state, 10**9, 0)
    moves = Moves(world.holds)
    moves.advance(world.state, Advance(hold, START + 19_000))
    moves.advance_overdue(world.state, overdue)
    moves.commit()
    assert world.holds.positions[hold] == HoldPosition(Timestamp(START + 19_000), Status.OK)


def test_downtime_does_not_count_until_max_lag_or_ten_minutes_of_uptime() -> None:
    world = World()
    short, long = world.create((T,), START - 500, 60_000), world.create((T,), START - 500, 10_800_000)
    day = 86_400_000
    world.pass_time(day)  # while no server ran
    assert world.holds.overdue(world.state, 59_999, day) == []
    assert [o.hold for o in world.holds.overdue(world.state, 60_000, day)] == [short]
    assert [o.hold for o in world.holds.overdue(world.state, 600_000, day)] == [short, long]
    world.pass_time(70_000)
    (overdue,) = world.holds.overdue(world.state, 59_999, day)
    assert overdue == Overdue(short, Timestamp(START + 10_000)), "what passed while it ran counts at once"


@pytest.mark.parametrize("beyond", [1, 10**9, 2**63, 2**64 - 1])
def test_a_time_beyond_the_write_frontier_is_refused(beyond: int) -> None:
    world = World()
    hold = world.create((T,), START - 500)
    world.pass_time(50_000)
    for ask in (lambda at: world.create((T,), at), lambda at: world.advance(hold, at)):
        with pytest.raises(PgError, match="beyond the write frontier") as refused:
            ask(START + 50_000 + beyond)
        assert refused.value.sqlstate == "22023"
        assert refused.value.detail == f"The greatest allowed time is {START + 50_000}."
    assert world.at(hold) == world.frontiers.since(T) == START - 500


def test_an_index_has_its_own_since() -> None:
    world = World()
    hold = world.create((I,), START - 500)
    world.pass_time(50_000)
    frontiers = world.frontiers
    assert frontiers.since(I) == frontiers.readable(T) == START - 500
    assert frontiers.since(T) == START + 50_000 - 1 - RETENTION_MS, "a hold on an index holds no table"
    reader = frontiers.hold([T], START)
    assert reader.collections == {I}, "the table is read by way of the index (h8)"
    world.drop(hold)
    assert frontiers.readable(T) == START, "the read keeps what it needs (h17)"
    world.state = without_item(world.state, I)
    frontiers.dropped(I)
    assert frontiers.readable(T) == START
    reader.release()
    assert frontiers.readable(T) == START + 50_000 - 1 - RETENTION_MS


def test_a_hold_on_a_table_holds_no_index() -> None:
    world = World()
    world.create((T,), START - 500)
    world.pass_time(50_000)
    assert world.frontiers.since(T) == START - 500
    assert world.frontiers.since(I) == START + 50_000 - 1 - RETENTION_MS


def test_history_on_disk_is_readable_after_a_restart() -> None:
    """The history of a materialized view and of its index is held, although it is longer than they retain."""
    frontiers = Frontiers()
    frontiers.created(T, Timestamp(10), Timestamp(50_000), 5_000)
    frontiers.index_created(I, T, Timestamp(10), 2_000)
    kept = frontiers.hold_history((T, I), Timestamp(1_000))
    assert frontiers.since(T) == frontiers.since(I) == frontiers.readable(T) == 1_000
    kept.release()
    assert frontiers.since(T) == 50_000 - 1 - 5_000
    assert frontiers.since(I) == 50_000 - 1 - 2_000


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["time", "create", "advance", "forward", "drop", "compact", "lag", "fail"]),
        st.integers(0, 3_000),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(STEPS)
def test_held_times_stay_readable(steps: list[tuple[str, int, int]]) -> None:
    """After any steps, each hold's time is readable on all its objects, also on disk. Refused steps change nothing."""
    world = World()
    frontiers, holds = world.frontiers, world.holds
    choices = ((T,), (U,), (I,), (T, U), (U, I), (T, U, I))
    for step, amount, choice in steps:
        ids = sorted(holds.positions)
        hold = ids[choice % len(ids)] if ids else None
        before = dict(holds.positions)
        try:
            match step:
                case "time":
                    world.pass_time(amount * 3)
                case "create":
                    world.create(choices[choice], frontiers.tables_upper - amount, 5_000 + amount)
                case "advance" if hold:
                    world.advance(hold, frontiers.tables_upper - amount)
                case "forward" if hold:
                    world.advance(hold, None)
                case "drop" if hold:
                    world.drop(hold)
                case "compact":
                    for id in (T, U):
                        frontiers.compacted(id, frontiers.readable(id))
                case "lag":
                    moves = Moves(holds)
                    for overdue in holds.overdue(world.state, 10**9, 0):
                        moves.advance_overdue(world.state, overdue)
                    moves.commit()
                case "fail" if hold:
                    moves = Moves(holds)
                    moves.advance(world.state, Advance(hold, frontiers.tables_upper - amount))
                    moves.roll_back()
        except PgError:
            assert holds.positions == before
        for id, position in holds.positions.items():
            item = world.state.items[id]
            assert isinstance(item, Hold)
            for on in item.on:
                assert frontiers.since(on) <= position.at <= frontiers.upper(on)
                assert frontiers.readable(T if on == I else on) <= position.at
                assert frontiers.floors[on] <= position.at
    assert len(frontiers.holders) == len(holds.positions)
