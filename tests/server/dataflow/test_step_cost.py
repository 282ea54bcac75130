"""When a step is abandoned and all rows are computed instead."""

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


def test_a_step_may_cost_as_much_as_computing_all_rows(work: StepCost) -> None:
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


def test_rows_count_before_they_are_looked_up(work: StepCost) -> None:
    work.begin(10, limited=True)
    work.add(WHOLE // 8, COST)
    work.expect(WHOLE // 8, COST)
    work.expect(WHOLE // 8, COST)  # adds no cost, because no row was read
    with pytest.raises(TooMuch):
        work.expect(WHOLE // 8 + 1, COST)


def test_the_cost_of_a_change_is_estimated_from_the_last_full_computation() -> None:
    work = StepCost()
    work.begin()
    work.add(3 * WHOLE, 2.0, rows_per_change=4.0)
    work.end(whole=WHOLE)
    most = WHOLE // 8  # the limit is 3 * WHOLE, and a change costs 3 * 2.0 * 4.0
    work.begin(most, limited=True)
    with pytest.raises(TooMuch):
        work.begin(most + 1, limited=True)


def test_the_limit_grows_with_inputs_that_are_recomputed() -> None:
    """A query over tables that were empty, whose first changes were all too many."""
    work = StepCost(reads_per_row=2)
    work.begin()
    work.end(whole=0)
    work.recomputed(WHOLE)
    work.begin(10, limited=True)
    work.add(WHOLE // 2, COST)
    with pytest.raises(TooMuch):
        work.add(1, 1.0)


def test_the_cost_of_a_large_step_is_the_estimate_for_the_next(work: StepCost) -> None:
    work.begin(1000, limited=True)
    work.add(WHOLE // 8, COST)
    work.end()
    work.begin(2000, limited=True)
    with pytest.raises(TooMuch):
        work.begin(2001, limited=True)
    work.begin(1000, limited=True)
    work.add(FEW_ROWS + 1, 1.0)  # costs less than estimated
    work.end()
    work.begin(2001, limited=True)


def test_the_cost_of_an_abandoned_step_is_the_estimate_for_the_next(work: StepCost) -> None:
    work.begin(1000, limited=True)
    with pytest.raises(TooMuch):
        work.expect(WHOLE, COST)
    work.begin(250, limited=True)
    with pytest.raises(TooMuch):
        work.begin(251, limited=True)


def test_an_unlimited_step_is_not_abandoned(work: StepCost) -> None:
    work.begin(10 * WHOLE)
    work.add(10 * WHOLE, COST)
    work.end()
