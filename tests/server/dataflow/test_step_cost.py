"""When a tick is given up for a computation of everything."""

from __future__ import annotations

import pytest

from server.dataflow.operators.step_cost import FEW_ROWS, StepCost, TooMuch

WHOLE = 40 * FEW_ROWS
COST = 4.0


@pytest.fixture
def work() -> StepCost:
    work = StepCost()
    work.begin()
    work.add(WHOLE, COST)
    work.end(whole=WHOLE)
    return work


def test_a_tick_may_cost_what_everything_does(work: StepCost) -> None:
    work.begin(10, limited=True)
    work.add(WHOLE // 4 - 1, COST)
    work.add(4, 1.0)
    with pytest.raises(TooMuch):
        work.add(1, 1.0)


def test_few_rows_are_never_too_much() -> None:
    work = StepCost()
    work.begin(10, limited=True)
    work.add(FEW_ROWS, 1.0)
    with pytest.raises(TooMuch):
        work.add(1, 1.0)


def test_what_is_yet_to_be_found_counts(work: StepCost) -> None:
    work.begin(10, limited=True)
    work.add(WHOLE // 8, COST)
    work.expect(WHOLE // 8, COST)
    work.expect(WHOLE // 8, COST)  # nothing of it was read
    with pytest.raises(TooMuch):
        work.expect(WHOLE // 8 + 1, COST)


def test_changes_are_expected_to_be_read_as_often_as_rows_were() -> None:
    work = StepCost()
    work.begin()
    work.add(3 * WHOLE, 2.0, met=4.0)
    work.end(whole=WHOLE)
    most = WHOLE // 8  # three times a row, at 2 each of 4, everything being three times as many rows
    work.begin(most, limited=True)
    with pytest.raises(TooMuch):
        work.begin(most + 1, limited=True)


def test_what_a_large_tick_took_tells_of_the_next(work: StepCost) -> None:
    work.begin(1000, limited=True)
    work.add(WHOLE // 8, COST)
    work.end()
    work.begin(2000, limited=True)
    with pytest.raises(TooMuch):
        work.begin(2001, limited=True)
    work.begin(1000, limited=True)
    work.add(FEW_ROWS + 1, 1.0)  # it was less than expected
    work.end()
    work.begin(2001, limited=True)


def test_what_was_given_up_tells_of_the_next(work: StepCost) -> None:
    work.begin(1000, limited=True)
    with pytest.raises(TooMuch):
        work.expect(WHOLE, COST)
    work.begin(250, limited=True)
    with pytest.raises(TooMuch):
        work.begin(251, limited=True)


def test_a_tick_that_nobody_can_replace_is_not_limited(work: StepCost) -> None:
    work.begin(10 * WHOLE)
    work.add(10 * WHOLE, COST)
    work.end()
