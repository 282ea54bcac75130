"""Keys that were read conflict exactly with writes of rows that have them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId, Timestamp
from server.coordinator.key_conflicts import BYTES_MAX, ROWS_MAX, WRITES_MAX, Keys, RecentWrites, Write
from server.sql.key_conditions import selected

T = ObjectId("u1")

_DAY = datetime.date(2020, 1, 1)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-3, 3),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    pa.string(): st.sampled_from(["", "a", "b", "a ", "NaN"]),
    pa.decimal128(10, 2): st.sampled_from([Decimal("1.00"), Decimal("-1.50"), Decimal("0.00")]),
    pa.date32(): st.integers(0, 3).map(lambda days: _DAY + datetime.timedelta(days)),
    pa.timestamp("us", "UTC"): st.integers(0, 3),
    pa.bool_(): st.booleans(),
    pa.binary(): st.sampled_from([b"", b"a"]),
}


def write(values: list[Any], type: pa.DataType) -> Write:
    return Write(pa.table([pa.array(values, type), pa.array([1] * len(values))], names=["c0", "diff"]))


@given(st.data())
def test_a_write_touches_keys_if_it_has_a_row_that_the_condition_selects(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(list(TYPES)))
    values = data.draw(st.lists(TYPES[type], max_size=3))
    values = [value + 0.0 if isinstance(value, float) else value for value in values]  # as in `column_values`
    wanted = pa.array(values, type).unique()
    rows = pa.table([pa.array(data.draw(st.lists(st.none() | TYPES[type], max_size=4)), type)], names=["c0"])
    touched = Write(rows).touches(Keys.of(0, wanted))
    found = selected(rows, [(0, wanted)]).num_rows
    assert touched == (found > 0)
    assert Keys.of(0, wanted).others(rows).num_rows == rows.num_rows - found


def test_only_later_writes_of_the_keys_conflict() -> None:
    recent = RecentWrites()
    recent.add(T, Timestamp(10), write([1], pa.int64()))
    recent.add(T, Timestamp(10), write([2], pa.int64()))
    recent.add(T, Timestamp(20), write([3], pa.int64()))
    one, three = (Keys.of(0, pa.array([value])) for value in (1, 3))
    assert recent.touch(T, Timestamp(9), one)
    assert not recent.touch(T, Timestamp(10), one)
    assert recent.touch(T, Timestamp(10), three)
    assert not recent.touch(T, Timestamp(20), three)
    recent.forget(T)
    assert not recent.touch(T, Timestamp(0), one)


def test_forgotten_writes_and_large_writes_conflict_with_all_keys() -> None:
    recent = RecentWrites()
    absent = Keys.of(0, pa.array([-1]))
    for time in range(1, WRITES_MAX + 3):
        recent.add(T, Timestamp(time), write([time], pa.int64()))
    assert recent.touch(T, Timestamp(1), absent)
    assert not recent.touch(T, Timestamp(2), absent)
    assert write(list(range(ROWS_MAX + 1)), pa.int64()).touches(absent)
    assert not Write(pa.table({"c0": [0], "c1": ["x" * 1_000]})).touches(absent)
    assert Write(pa.table({"c0": [0], "c1": ["x" * (BYTES_MAX + 1)]})).touches(absent)
