"""Timestamps never repeat, never decrease, and are never beyond the reservation, whatever the clock and crashes do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.oracle import RESERVATION_MS, Oracle

# One event: the clock shows a time (drawn freely, or near the end of the reservation, where mistakes are likely), and
# then a commit succeeds or fails, or the server dies before or after it.
clocks = st.integers(0, 3 * RESERVATION_MS) | st.integers(-(2**40), 2**50)
near_the_end = st.integers(-3, 3).map(lambda distance: ("end", distance))
moments = st.tuples(
    st.tuples(st.just("clock"), clocks) | near_the_end,
    st.sampled_from(["commit", "commit", "commit", "fail", "crash before", "crash after"]),
)


@given(st.lists(moments, max_size=60))
def test_times_increase_and_are_within_the_reservation(
    history: list[tuple[tuple[str, int], str]],
) -> None:
    on_disk = 0
    oracle = Oracle(on_disk)
    shown: list[int] = []  # the frontiers that clients received: the time of a commit + 1
    for (base, distance), event in history:
        clock = distance + (on_disk if base == "end" else 0)
        before = oracle.last
        time = oracle.next(clock)
        assert time == max(clock, before + 1)
        extension = oracle.extension()
        assert extension is None or extension > time + 1
        if event == "crash before":
            oracle = Oracle(on_disk)
        elif event != "fail":
            if extension is not None:
                on_disk = extension
                oracle.extended(extension)
            assert time + 1 < on_disk, "shown before it was reserved"
            assert not shown or time >= shown[-1], "a time that was final is written to"
            shown.append(time + 1)
            if event == "crash after":
                oracle = Oracle(on_disk)


def test_a_regular_clock_needs_one_extension_per_reservation() -> None:
    oracle = Oracle(0)
    extensions = 0
    for clock in range(1_000_000, 1_000_000 + 3 * RESERVATION_MS, 100):
        oracle.next(clock)
        extension = oracle.extension()
        if extension is not None:
            extensions += 1
            oracle.extended(extension)
    assert extensions == 3


def test_a_restart_begins_at_the_end_of_the_reservation() -> None:
    oracle = Oracle(5_000)
    assert oracle.next(clock_ms=10) == 5_000
    assert oracle.extension() == 5_000 + RESERVATION_MS
