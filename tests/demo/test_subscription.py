"""The rows that a subscription's messages add up to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subscription import Accumulated, SubscriptionFailed


def progress(at: int) -> tuple[Any, ...]:
    return at, True, None, None


def change(at: int, diff: int, value: str) -> tuple[Any, ...]:
    return at, False, diff, value


def test_changes_are_applied_by_a_later_progress() -> None:
    state = Accumulated()
    for message in (progress(5), change(5, 1, "a"), change(7, 1, "b"), progress(6)):
        state.take(message)
    assert state.rows == Counter({("a",): 1})
    assert (state.frontier, state.updates, state.progresses) == (6, 2, 2)
    assert state.take(progress(8))
    assert state.rows == Counter({("a",): 1, ("b",): 1})


def test_progress_does_not_apply_changes_at_its_own_time() -> None:
    state = Accumulated()
    state.take(change(5, 2, "a"))
    state.take(progress(5))
    assert not state.rows
    state.take(progress(6))
    assert state.rows == Counter({("a",): 2})


def test_both_changes_of_an_update_are_applied_together() -> None:
    state = Accumulated()
    for message in (change(1, 1, "old"), progress(2), change(2, -1, "old"), change(2, 1, "new")):
        state.take(message)
    assert state.rows == Counter({("old",): 1})
    state.take(progress(3))
    assert state.rows == Counter({("new",): 1})


def test_a_change_before_the_last_progress_is_an_error() -> None:
    state = Accumulated()
    state.take(progress(5))
    with pytest.raises(SubscriptionFailed, match="at 4 came after progress at 5"):
        state.take(change(4, 1, "a"))


def test_a_deletion_of_a_missing_row_is_an_error() -> None:
    state = Accumulated()
    state.take(change(4, -1, "a"))
    with pytest.raises(SubscriptionFailed, match="not there"):
        state.take(progress(5))


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abc"), st.booleans()), max_size=40))
def test_the_rows_are_the_sum_of_the_changes_before_the_frontier(steps: list[tuple[int, str, bool]]) -> None:
    state, now = Accumulated(), 0
    sent: list[tuple[int, str]] = []
    for wait, value, is_progress in steps:
        now += wait
        if is_progress:
            state.take(progress(now))
            assert state.rows == Counter((value,) for at, value in sent if at < now)
        else:
            sent.append((now, value))
            state.take(change(now, 1, value))
