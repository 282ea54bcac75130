"""Frontiers: the readable times, and holds on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.ids import ObjectId, Timestamp
from server.timeline.frontiers import RETENTION_MS, Frontiers, FullHolder, Holder, NotReadable

T, V = ObjectId("u1"), ObjectId("u2")


def frontiers(upper: int) -> Frontiers:
    made = Frontiers()
    made.tables_upper = Timestamp(upper)
    made.created(T, Timestamp(0), None)
    made.created(V, Timestamp(0), Timestamp(upper))
    return made


def test_since_follows_upper_at_the_retention() -> None:
    assert frontiers(10_000).since(T) == 10_000 - 1 - RETENTION_MS


def test_since_never_precedes_creation() -> None:
    made = frontiers(10_000)
    made.created(ObjectId("u9"), Timestamp(9_999), None)
    assert made.since(ObjectId("u9")) == 9_999


def test_a_holder_keeps_since_until_released() -> None:
    made = frontiers(10_000)
    holder = made.hold([T], 9_500)
    made.tables_upper = Timestamp(90_000)
    assert made.since(T) == 9_500
    assert made.since(V) == 8_999, "only what it names"
    holder.advance(20_000)
    holder.advance(10)
    assert made.since(T) == 20_000, "a holder moves forward only"
    holder.release()
    assert made.since(T) == 90_000 - 1 - RETENTION_MS


def test_a_hold_before_since_is_refused() -> None:
    with pytest.raises(NotReadable) as refused:
        frontiers(10_000).hold([T], 10)
    assert refused.value.since == 8_999


def test_compaction_sets_a_floor() -> None:
    made = frontiers(10_000)
    made.compacted(T, Timestamp(9_500))
    assert made.since(T) == 9_500


@given(
    st.lists(st.tuples(st.sampled_from(["upper", "hold", "release", "advance"]), st.integers(0, 5_000)), max_size=40)
)
def test_since_never_decreases(steps: list[tuple[str, int]]) -> None:
    made = frontiers(10_000)
    holders = []
    last = made.since(T)
    for step, amount in steps:
        if step == "upper":
            made.tables_upper = Timestamp(made.tables_upper + amount)
        elif step == "hold":
            holders.append(made.hold([T], made.since(T) + amount))
        elif holders and step == "release":
            holders.pop(amount % len(holders)).release()
        elif holders:
            holder = holders[amount % len(holders)]
            holder.advance(holder.time + amount)
        assert made.since(T) >= last
        last = made.since(T)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["upper", "view", "compact", "block", "hold", "release", "index", "drop"]),
            st.integers(0, 3_000),
        ),
        max_size=40,
    )
)
@example([("block", 1002), ("index", 0), ("upper", 1003), ("block", 1002), ("drop", 0)])
def test_a_holder_of_all_collections_is_one_of_each_readable_collection(steps: list[tuple[str, int]]) -> None:
    """The same steps with `hold_all`, and with a holder of each collection that is readable then."""
    both = [frontiers(10_000), frontiers(10_000)]
    holders: list[list[Holder | FullHolder]] = [[], []]
    indexes: list[ObjectId] = []
    is_dropped = False
    for step, amount in steps:
        time = Timestamp(max(0, both[0].tables_upper - 1 - (0 if amount % 2 else amount)))
        for made, own in zip(both, holders, strict=True):
            match step:
                case "upper":
                    made.tables_upper = Timestamp(made.tables_upper + amount)
                case "view":
                    made.view_uppers[V] = Timestamp(min(made.tables_upper, made.view_uppers[V] + amount))
                case "compact":
                    id = (T, V)[amount % 2]
                    made.compacted(id, Timestamp(min(made.log_start(id), made.floors[id] + amount)))
                case "block" if made is both[0]:
                    own.append(made.hold_all(time))
                case "block":
                    own.append(made.hold([id for id in made.floors if made.since(id) <= time], time))
                case "hold":
                    own.append(made.hold([T], made.readable(T) + amount))
                case "release" if own:
                    own.pop(amount % len(own)).release()
                case "index":
                    made.index_created(ObjectId(f"i{len(indexes)}"), (T, V)[amount % 2], made.tables_upper, None)
                case "drop" if indexes:
                    made.dropped(indexes[-1])
        if step == "index":
            indexes.append(ObjectId(f"i{len(indexes)}"))
        elif step == "drop" and indexes:
            indexes.pop()
            is_dropped = True
        for id in both[0].floors:
            # A holder of all collections also holds those that are created later, and the tables of dropped indexes.
            assert both[0].since(id) <= both[1].since(id)
            assert both[0].since(id) == both[1].since(id) or indexes or is_dropped
            for at in (time, both[0].readable(id) - 1, both[0].readable(id)):
                assert both[0].is_readable(id, at) == (both[0].readable(id) <= at)
        assert both[0].next_readable((T, V), time) == max(time, both[0].greatest_since((T, V)))


def test_a_block_costs_the_same_with_many_collections() -> None:
    made = frontiers(10_000)
    for number in range(10_000):
        made.created(ObjectId(f"u{number + 10}"), Timestamp(0), None)
    made.floors = _Counted(made.floors)
    made.hold_all(Timestamp(9_999)).release()
    assert made.floors.reads == 0


def test_a_read_costs_the_same_with_many_holders() -> None:
    made = frontiers(10_000)
    holders = [made.hold([T], 9_500) for _ in range(10_000)]
    made.holders_of[T] = _Unreadable(holders)
    assert made.is_readable(T, 9_999)
    assert made.next_readable([T], 9_999) == 9_999


class _Counted(dict[ObjectId, Timestamp]):
    """Counts iterations and searches."""

    reads = 0

    def __iter__(self) -> Iterator[ObjectId]:
        self.reads += 1
        return super().__iter__()

    def get(self, *args: Any) -> Any:
        self.reads += 1
        return super().get(*args)


class _Unreadable(set[Holder]):
    def __iter__(self) -> Iterator[Holder]:
        raise AssertionError("all holders were read")


async def test_reached_waits_for_the_least_upper() -> None:
    made = frontiers(100)
    waiting = asyncio.create_task(made.reached(frozenset((T, V)), 100))
    made.tables_upper = Timestamp(200)
    await asyncio.sleep(0)
    made.moved.fire()
    await asyncio.sleep(0)
    assert not waiting.done()
    made.view_uppers[V] = Timestamp(101)
    made.moved.fire()
    await waiting


INDEX = ObjectId("u3")


def test_a_relation_is_readable_through_its_index() -> None:
    made = frontiers(10_000)
    made.index_created(INDEX, T, Timestamp(0), 5_000)
    assert (made.since(INDEX), made.upper(INDEX)) == (4_999, 10_000)
    assert (made.readable(T), made.log_start(T)) == (4_999, 4_999)
    made.tables_upper = Timestamp(20_000)
    assert made.upper(INDEX) == 20_000


def test_an_index_on_a_view_keeps_the_log_of_its_inputs() -> None:
    """This does not make the inputs readable at earlier times."""
    made = frontiers(10_000)
    made.view_index_created(INDEX, frozenset((T,)), Timestamp(2_000), None)
    assert (made.since(INDEX), made.upper(INDEX)) == (2_000, 2_000)
    assert (made.readable(T), made.log_start(T), made.log_start(V)) == (8_999, 2_000, 8_999)
    assert made.since_at(INDEX, 10_000) == 8_999, "where it is to begin"
    holder = made.hold_history([INDEX], Timestamp(3_000))
    assert made.since_at(INDEX, 10_000) == 3_000
    made.index_reached(INDEX, Timestamp(10_000))
    assert (made.since(INDEX), made.log_start(T)) == (3_000, 3_000)
    made.compacted(T, Timestamp(2_500))
    with pytest.raises(NotReadable):
        made.hold_history([INDEX], Timestamp(2_400))
    holder.release()
    assert (made.since(INDEX), made.log_start(T)) == (8_999, 8_999)
    made.dropped(INDEX)
    made.index_reached(INDEX, Timestamp(11_000))
    assert made.upper(INDEX) == made.tables_upper


def test_a_computed_index_has_its_own_upper() -> None:
    made = frontiers(10_000)
    made.index_created(INDEX, T, Timestamp(9_000), None, computed=True)
    assert made.upper(INDEX) == 9_000
    made.index_reached(INDEX, Timestamp(9_500))
    assert (made.upper(INDEX), made.since(INDEX)) == (9_500, 9_000)


W = ObjectId("u7")


def test_a_view_at_rest_follows_its_inputs() -> None:
    made = frontiers(100)
    made.created(W, Timestamp(0), Timestamp(100))
    made.follow(W, frozenset({T, V}))
    assert made.followers(T) == made.followers(V) == {W}
    made.tables_upper = Timestamp(200)
    assert made.upper(W) == 100, "the other input is at 100"
    made.follow(V, frozenset({T}))
    assert made.followers(T) == {V, W}
    made.tables_upper = Timestamp(300)
    assert made.upper(V) == made.upper(W) == 300
    made.stop_following(V)
    made.tables_upper = Timestamp(400)
    assert made.upper(V) == made.upper(W) == 300
    assert made.followers(T) == {W}
    made.dropped(W)
    assert made.followers(T) == made.followers(V) == set()


@pytest.mark.parametrize("inputs", [{T}, {T, V}])
def test_a_following_holder_keeps_the_time_before_the_least_upper(inputs: set[ObjectId]) -> None:
    made = frontiers(10_000)
    made.retain(T, 1)
    holder = made.hold(inputs, 9_999)
    holder.follow(frozenset(inputs))
    made.tables_upper = Timestamp(20_000)
    held = 19_999 if inputs == {T} else 9_999
    assert holder.time == held
    assert made.since(T) == min(held, 20_000 - 1 - 1)
    holder.follow(None)
    made.tables_upper = Timestamp(30_000)
    assert holder.time == made.since(T) == held
    holder.follow(frozenset(inputs))
    made.dropped(T)
    assert holder.collections == inputs - {T}
    holder.release()
    assert not made.holders_of
    assert not made.passive_of


def test_upper_of_views_at_rest_visits_each_view_once() -> None:
    """Each of the views reads both views of the level below: there are 2^60 paths to the table."""
    made = frontiers(100)
    below = frozenset({T})
    for level in range(60):
        ids = frozenset(ObjectId(f"u{100 + 2 * level + side}") for side in (0, 1))
        for id in ids:
            made.created(id, Timestamp(0), Timestamp(100))
            made.follow(id, below)
        below = ids
    made.tables_upper = Timestamp(200)
    assert made.least_upper(below) == 200
