"""Rounding the seconds of Arrow values, compared with the row-by-row functions that evaluate casts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from server.execution.second_digits import rounded_seconds
from server.sql.functions.table import FUNCTIONS
from tests.examples import examples

ROUNDING = {
    kind: next(f.python for f in FUNCTIONS[kind] if len(f.arguments) == 2 and f.arguments[0].name == kind)
    for kind in ("time", "timestamp", "interval")
}
INFINITIES = (-1 << 63, (1 << 63) - 1)
DAY_US = 86_400_000_000


@examples(200)
@given(st.lists(st.none() | st.integers(-2 * 10**17, 2**60) | st.sampled_from(INFINITIES)), st.integers(0, 6))
def test_timestamps(values: list[int | None], digits: int) -> None:
    _compare("timestamp", pa.array(values, pa.timestamp("us")), values, digits)


@examples(200)
@given(st.lists(st.none() | st.integers(0, DAY_US - 1_000_000)), st.integers(0, 6))
def test_times(values: list[int | None], digits: int) -> None:
    _compare("time", pa.array(values, pa.time64("us")), values, digits)


@examples(200)
@given(st.lists(st.none() | st.integers(-(2**40), 2**40)), st.integers(0, 6))
def test_intervals(values: list[int | None], digits: int) -> None:
    intervals = [None if us is None else pa.MonthDayNano((1, -2, us * 1000)) for us in values]
    array = pa.array(intervals, pa.month_day_nano_interval())
    found = rounded_seconds(array, digits).to_pylist()
    assert found == [None if value is None else ROUNDING["interval"](value, digits) for value in intervals]


@examples(100)
@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, DAY_US - 1_000_000))), st.integers(0, 6))
def test_arrays(lists: list[list[int | None] | None], digits: int) -> None:
    array = pa.array([None, *lists], pa.list_(pa.time64("us"))).slice(1)
    found = rounded_seconds(array, digits).cast(pa.list_(pa.int64())).to_pylist()
    rounding: Any = ROUNDING["time"]
    assert found == [
        None if values is None else [None if v is None else rounding(v, digits) for v in values] for values in lists
    ]


def _compare(kind: str, array: pa.Array, values: list[int | None], digits: int) -> None:
    rounding: Any = ROUNDING[kind]
    found = rounded_seconds(array, digits).cast(pa.int64()).to_pylist()
    if kind == "timestamp":  # the functions do not get them: their result is the argument
        found = [value for value in found if value not in INFINITIES]
        assert len(values) - len(found) == sum(value in INFINITIES for value in values)
        values = [value for value in values if value not in INFINITIES]
    assert found == [None if value is None else rounding(value, digits) for value in values]
