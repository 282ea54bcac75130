"""`rows_at` returns what `pa.Table.take` returns, from any number of chunks."""

from __future__ import annotations

import datetime
import decimal
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.columnar import gather
from protocol.columnar.gather import rows_at

VALUES = {
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1, 1, 1)),
    pa.decimal128(12, 2): st.decimals(-1_000_000, 1_000_000, places=2).map(lambda v: v + decimal.Decimal("0.00")),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
}


@given(st.data())
def test_rows_equal_those_of_take(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    schema = pa.schema([pa.field(f"c{number}", type) for number, type in enumerate(types)])
    chunks = []
    for _ in range(data.draw(st.integers(0, 4))):
        rows = data.draw(st.integers(0, 12))
        columns = [
            pa.array(data.draw(st.lists(st.none() | VALUES[type], min_size=rows, max_size=rows)), type)
            for type in types
        ]
        chunk = pa.table(columns, schema=schema)
        first = data.draw(st.integers(0, rows))
        chunks.append(chunk.slice(first, data.draw(st.integers(0, rows))))
    table = pa.concat_tables([schema.empty_table(), *chunks])
    places = st.lists(st.integers(0, table.num_rows - 1), max_size=40) if table.num_rows else st.just([])
    positions = np.array(data.draw(places), np.int64)
    with mock.patch.object(gather, "SMALL_BYTES", data.draw(st.sampled_from([0, gather.SMALL_BYTES]))):
        found = rows_at(table, positions)
    found.validate(full=True)
    assert found.schema == schema
    assert found.to_pylist() == table.take(pa.array(positions)).to_pylist()


@pytest.mark.parametrize("count", [3, 1_000, 40_000])
def test_few_and_many_rows_of_several_chunks(count: int) -> None:
    """Also in more than one block."""
    values = [None if number % 7 == 0 else f"{number}" * (number % 5) for number in range(20_000)]
    array = pa.array(values)
    column = pa.chunked_array([array.slice(0, 5_000), array.slice(5_000, 3), array.slice(5_003)])
    positions = np.random.default_rng(count).integers(0, len(values), count)
    found = rows_at(pa.table({"c0": column}), positions)
    found.validate(full=True)
    assert found["c0"].num_chunks == 1
    assert found["c0"].to_pylist() == [values[position] for position in positions.tolist()]


def test_a_large_result_has_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "STRING_BYTES_MAX", 100)
    monkeypatch.setattr(gather, "SMALL_BYTES", 0)
    values = [f"{number:030}" for number in range(50)]
    column = pa.chunked_array([pa.array(values[:20]), pa.array(values[20:])])
    found = rows_at(pa.table({"c0": column}), np.arange(50)[::-1])
    found.validate(full=True)
    assert found["c0"].num_chunks == 17
    assert found["c0"].to_pylist() == values[::-1]


@pytest.mark.large
def test_more_than_two_gigabytes() -> None:
    """`pa.Table.take` fails: "offset overflow while concatenating arrays"."""
    part = pa.array(["x" * 1_000_000, "y"] * 400)
    table = pa.table({"c0": pa.chunked_array([part] * 6)})
    assert rows_at(table, np.array([4_799, 0, 1_601]))["c0"].to_pylist() == ["y", "x" * 1_000_000, "y"]
    found = rows_at(table, np.arange(table.num_rows))
    assert found["c0"].num_chunks == 2
    assert found["c0"][4_799].as_py() == "y"
