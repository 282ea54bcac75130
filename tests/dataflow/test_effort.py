"""When a tick is given up for a computation of everything."""

from __future__ import annotations

import pytest

from server.dataflow.effort import FEW_ROWS, SHARE, Effort, TooMuch

MOST = 10 * FEW_ROWS


@pytest.fixture
def work() -> Effort:
    work = Effort()
    work.begin()
    work.add(MOST * SHARE)
    work.end(whole=True)
    return work


def test_a_tick_may_read_a_share_of_everything(work: Effort) -> None:
    work.begin(10, limited=True)
    work.add(MOST - 1)
    work.add(1)
    with pytest.raises(TooMuch):
        work.add(1)


def test_few_rows_are_never_too_much() -> None:
    work = Effort()
    work.begin(10, limited=True)
    work.add(FEW_ROWS)
    with pytest.raises(TooMuch):
        work.add(1)


def test_what_a_large_tick_took_tells_of_the_next(work: Effort) -> None:
    work.begin(1000, limited=True)
    work.add(MOST // 2)
    work.end()
    work.begin(2000, limited=True)
    with pytest.raises(TooMuch):
        work.begin(2001, limited=True)
    work.begin(1000, limited=True)
    work.add(FEW_ROWS + 1)  # it was less than expected
    work.end()
    work.begin(2001, limited=True)


def test_a_tick_that_nobody_can_replace_is_not_limited(work: Effort) -> None:
    work.begin(10 * MOST)
    work.add(10 * MOST)
    work.end()
