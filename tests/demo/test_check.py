"""The demo's check detects errors in a subscription's rows."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime

import check
import pandas as pd
import pytest

DAY = date(2013, 7, 10)
EVENING = datetime(2013, 7, 10, 18)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return check.flights_at(DAY, EVENING)


def test_equal_rows_have_no_differences(frame: pd.DataFrame) -> None:
    assert check.differences(check.traffic(frame), check.traffic(frame)) == []
    assert check.traffic(frame).total() > 30
    assert check.departures(frame).total() > 700


def test_a_wrong_row_is_shown_with_the_right_one(frame: pd.DataFrame) -> None:
    right = check.traffic(frame)
    row = next(iter(right))
    wrong = right.copy()
    del wrong[row]
    wrong[(*row[:2], row[2] + 1, *row[3:])] += 1
    missing, surplus = check.differences(right, wrong)
    assert missing.startswith(f"missing  1 x ({row[0]}, {row[1]}, {row[2]}, ")
    assert surplus.startswith(f"surplus  1 x ({row[0]}, {row[1]}, {row[2] + 1}, ")


def test_a_duplicated_row_is_a_difference(frame: pd.DataFrame) -> None:
    right = check.departures(frame)
    row = next(iter(right))
    (line,) = check.differences(right, right + Counter([row]))
    assert line.startswith("surplus  1 x")


def test_a_long_list_of_differences_is_truncated(frame: pd.DataFrame) -> None:
    lines = check.differences(check.departures(frame), Counter())
    assert len(lines) == check.LINES_MAX + 1
    assert lines[-1] == f"and {check.departures(frame).total() - check.LINES_MAX} more"
