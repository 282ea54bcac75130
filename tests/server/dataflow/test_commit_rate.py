"""The pauses of a dataflow between steps."""

from __future__ import annotations

import asyncio

import pytest

from server.dataflow.runtime.commit_rate import PAUSE_S_MAX, UNREAD_PAUSE_S, WAITING_MAX, CommitRate, pause
from tests.polling import HANG_S


def rate_of(commits_per_s: float, step_s: float, seconds: float = 5.0) -> CommitRate:
    """The rate after steps of this duration with all the commits that arrive meanwhile."""
    rate, now_s, left = CommitRate(0.0), 0.0, 0.0
    while now_s < seconds:
        now_s += step_s
        left += commits_per_s * step_s
        rate.add(int(left), now_s)
        left -= int(left)
    return rate


@pytest.mark.parametrize("commits_per_s", [1, 20, 200, 1_000])
@pytest.mark.parametrize("step_s", [0.002, 0.05, 0.4])
def test_the_rate_is_that_of_the_commits(commits_per_s: float, step_s: float) -> None:
    assert rate_of(commits_per_s, step_s).per_s == pytest.approx(commits_per_s, rel=0.7 if commits_per_s < 20 else 0.1)


def test_the_rate_falls_when_the_commits_end() -> None:
    rate = rate_of(500, 0.02)
    rate.add(1, 10.0)
    assert rate.per_s < 5


def test_rare_commits_wait_only_for_twice_a_short_step() -> None:
    rate = rate_of(20, 0.01)
    assert rate.pause_s(0.005, 1) == 0.01
    assert rate.pause_s(0.03, 1) == 0.0


def test_frequent_commits_are_processed_together() -> None:
    rate = rate_of(400, 0.01)
    assert rate.pause_s(0.002, 1) == pytest.approx(0.04, rel=0.1)
    assert rate.pause_s(0.2, 60) == pytest.approx(0.04, rel=0.1)
    assert rate_of(5_000, 0.01).pause_s(0.002, 10) == PAUSE_S_MAX


def test_there_is_no_pause_without_commits_or_with_a_lag() -> None:
    rate = rate_of(400, 0.01)
    assert rate.pause_s(0.005, 0) == 0.0
    assert rate.pause_s(0.2, WAITING_MAX + 1) == 0.0


def test_an_unread_result_pauses_longer_while_commits_are_frequent() -> None:
    assert rate_of(60, 0.01).unread_pause_s(0.002, 0) == UNREAD_PAUSE_S
    assert rate_of(60, 0.01).unread_pause_s(0.002, WAITING_MAX + 1) < UNREAD_PAUSE_S
    assert rate_of(20, 0.01).unread_pause_s(0.002, 0) == 0.004


async def test_a_reader_ends_a_pause() -> None:
    awaited = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, awaited.set)
    await asyncio.wait_for(pause(600, awaited), HANG_S)
    assert not awaited.is_set()
    await pause(0.001, awaited)
