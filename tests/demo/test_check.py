"""The check finds what is wrong with a subscription's rows."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime

import check
import pandas as pd  # type: ignore[import-untyped]
import pytest

DAY = date(2013, 7, 10)
EVENING = datetime(2013, 7, 10, 18)


@pytest.fixture(scope="module")
def departures() -> pd.DataFrame:
    return check.departures_at(DAY, EVENING)


def test_equal_rows_have_no_differences(departures: pd.DataFrame) -> None:
    assert check.differences(check.traffic(departures), check.traffic(departures)) == []
    assert check.traffic(departures).total() > 30
    assert check.board(departures).total() > 300


def test_a_planted_error_is_shown_with_both_rows(departures: pd.DataFrame) -> None:
    right = check.traffic(departures)
    row = next(iter(right))
    wrong = right.copy()
    del wrong[row]
    wrong[(*row[:2], row[2] + 1, *row[3:])] += 1
    missing, surplus = check.differences(right, wrong)
    assert missing.startswith(f"missing  1 x ({row[0]}, {row[1]}, {row[2]}, ")
    assert surplus.startswith(f"surplus  1 x ({row[0]}, {row[1]}, {row[2] + 1}, ")


def test_a_row_that_is_there_twice_is_one_too_many(departures: pd.DataFrame) -> None:
    right = check.board(departures)
    row = next(iter(right))
    (line,) = check.differences(right, right + Counter([row]))
    assert line.startswith("surplus  1 x")


def test_many_differences_are_cut(departures: pd.DataFrame) -> None:
    lines = check.differences(check.board(departures), Counter())
    assert len(lines) == check.LINES_MAX + 1
    assert lines[-1] == f"and {check.board(departures).total() - check.LINES_MAX} more"
