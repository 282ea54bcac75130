"""Conversion of intervals between Arrow and Spark. Statements of tests/sql cannot cover these cases."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError
from server.spark.arrow_types import from_spark, spark_schema, to_spark

INTERVAL = pa.month_day_nano_interval()
_INT32 = st.integers(-(2**31), 2**31 - 1)
_US = st.integers(-((2**63 - 1) // 1000), (2**63 - 1) // 1000)
ROW = pa.struct([("f0", pa.list_(INTERVAL)), ("f1", pa.timestamp("us", "UTC")), ("f2", pa.time64("us"))])
_intervals = st.none() | st.builds(lambda m, d, us: pa.MonthDayNano([m, d, us * 1000]), _INT32, _INT32, _US)


@given(st.lists(st.tuples(_intervals, st.none() | st.lists(_intervals, max_size=3)), max_size=6), st.integers(0, 6))
def test_a_round_trip_keeps_intervals(rows: list[tuple[object, object]], start: int) -> None:
    """The conversion into parts and back keeps NULLs, lists and slices."""
    columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate((INTERVAL, pa.list_(INTERVAL)))]
    table = pa.table(columns, names=["c0", "c1"]).slice(start)
    parts = to_spark(table)
    parts.validate(full=True)
    back = from_spark(parts)
    back.validate(full=True)
    assert back.equals(table)
    assert back.schema.types == [INTERVAL, pa.list_(INTERVAL)]


@given(
    st.lists(st.none() | st.tuples(st.none() | st.lists(_intervals, max_size=2), _INT32), max_size=6), st.integers(0, 6)
)
def test_a_round_trip_keeps_rows(values: list[tuple[object, int] | None], start: int) -> None:
    """Rows with intervals, also inside lists, keep NULLs and slices."""
    rows = [None if v is None else {"f0": v[0], "f1": v[1], "f2": v[1] % 1_000} for v in values]
    table = pa.table([pa.array(rows, ROW), pa.array([rows] * len(rows), pa.list_(ROW))], ["c0", "c1"])
    table = table.slice(start)
    parts = to_spark(table)
    parts.validate(full=True)
    back = from_spark(parts)
    back.validate(full=True)
    assert back.equals(table)
    assert '"f2"' in spark_schema(table.schema)


def test_an_interval_has_months_days_and_microseconds() -> None:
    table = to_spark(pa.table({"c0": pa.array([pa.MonthDayNano([1, -2, 3_000]), None], INTERVAL)}))
    assert table.column("c0").to_pylist() == [{"months": 1, "days": -2, "us": 3}, None]
    assert '"months"' in spark_schema(pa.schema([("c0", INTERVAL)]))


def test_an_interval_beyond_the_range_of_arrow_is_an_error() -> None:
    """Arrow counts nanoseconds in 64 bits, so its range is smaller than that of Spark's microseconds."""
    parts = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("us", pa.int64())])
    table = pa.table({"c0": pa.array([{"months": 0, "days": 0, "us": 1 << 60}], parts)})
    with pytest.raises(PgError, match="interval out of range"):
        from_spark(table)
