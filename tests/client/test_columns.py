"""Changes as Arrow tables, and as data frames of pandas and polars."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import polars
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewire
from tests.client.conftest import Execute
from tests.client.test_reader import NAMES, feed, progress
from tests.client.test_sync import changed
from tidewire import ColumnType, Query, Reader, Snapshot, aio
from tidewire.columns import changes_table

ROOT = Path(__file__).parents[2]

COLUMNS = {
    "i2": ("smallint", pa.int16(), 1),
    "i4": ("int", pa.int32(), -5),
    "i8": ("bigint", pa.int64(), 2**62),
    "f4": ("real", pa.float32(), 0.5),
    "f8": ("float8", pa.float64(), 1e300),
    "n": ("numeric(9,2)", pa.decimal128(9, 2), Decimal("12.30")),
    "m": ("numeric", pa.string(), "0.00000001"),
    "t": ("text", pa.string(), "grün"),
    "vc": ("varchar(3)", pa.string(), "abc"),
    "b": ("bool", pa.bool_(), True),
    "d": ("date", pa.date32(), date(2020, 2, 29)),
    "ti": ("time", pa.time64("us"), time(1, 2, 3)),
    "ts": ("timestamp", pa.timestamp("us"), datetime(2020, 2, 29, 1, 2, 3, 4)),
    "tz": ("timestamptz", pa.timestamp("us", tz="UTC"), datetime(2020, 2, 29, 1, 2, 3, 4, UTC)),
    "iv": ("interval", pa.duration("us"), timedelta(hours=3)),
    "u": ("uuid", pa.string(), "12345678-1234-5678-1234-567812345678"),
    "j": ("jsonb", pa.string(), '{"a": [1, "b"]}'),
    "js": ("jsonb", pa.string(), '"a string"'),
    "by": ("bytea", pa.binary(), b"\0\xff"),
    "ai": ("int[]", pa.list_(pa.int32()), [1, None, 3]),
    "at": ("text[]", pa.list_(pa.string()), ["x", None]),
    "an": ("numeric[]", pa.list_(pa.string()), ["1.5"]),
}
VALUES = (
    "1, -5, 4611686018427387904, 0.5, 1e300, 12.3, 0.00000001, 'grün', 'abc', true, '2020-02-29', '01:02:03',"
    " '2020-02-29 01:02:03.000004', '2020-02-29 01:02:03.000004+00', '3 hours', '12345678-1234-5678-1234-567812345678',"
    """ '{"a": [1, "b"]}', '"a string"', '\\x00ff', '{1,NULL,3}', '{x,NULL}', '{1.5}'"""
)


@pytest.fixture
def wide(execute: Execute) -> str:
    """A table of two rows: values of many types, and NULLs."""
    execute(f"CREATE TABLE wide ({', '.join(f'{name} {sql}' for name, (sql, _, _) in COLUMNS.items())})")
    execute(f"INSERT INTO wide VALUES ({VALUES}), ({', '.join(['NULL'] * len(COLUMNS))})")
    return "wide"


def check_wide(snapshot: Any, *, without_scale: bool) -> None:
    assert isinstance(snapshot, Snapshot)
    table = snapshot.arrow()
    assert table.column_names == ["mz_timestamp", "mz_diff", *COLUMNS]
    full, empty = sorted(table.to_pylist(), key=lambda row: row["i2"] is None)
    for name, (_, arrow_type, value) in COLUMNS.items():
        if name == "n" and without_scale:
            arrow_type, value = pa.string(), "12.30"
        assert table.schema.field(name).type == arrow_type, name
        assert full[name] == value, name
        assert empty[name] is None, name
    assert (full["mz_timestamp"], full["mz_diff"]) == (snapshot.time, 1)


@pytest.mark.usefixtures("released")
def test_types_are_those_of_the_servers_columns(dsn: str, wide: str) -> None:
    with tidewire.subscribe(dsn, wide) as batches:
        check_wide(next(batches), without_scale=False)


@pytest.mark.usefixtures("released")
async def test_asyncpg_does_not_return_the_scale_of_numeric(dsn: str, wide: str) -> None:
    async with aio.subscribe(dsn, wide) as batches:
        check_wide(await anext(batches), without_scale=True)


@pytest.mark.usefixtures("released")
def test_several_timestamps_are_one_table_and_data_frames(dsn: str, table: str, execute: Execute) -> None:
    with tidewire.subscribe(dsn, table) as batches:
        snapshot = next(batches)
        execute("INSERT INTO t VALUES (1, 10), (2, 20)")
        execute("DELETE FROM t WHERE k = 1")
        one, two = changed(batches, 2)
    both = tidewire.to_arrow([snapshot, one, two])
    assert both.schema == two.arrow().schema == snapshot.arrow().schema  # type: ignore[union-attr]
    assert snapshot.arrow().num_rows == 0  # type: ignore[union-attr]
    rows = sorted((row["mz_timestamp"], row["mz_diff"], row["k"], row["v"]) for row in both.to_pylist())
    assert rows == [(one.time, 1, 1, 10), (one.time, 1, 2, 20), (two.time, -1, 1, 10)]
    frame = one.to_pandas()
    assert list(frame.columns) == ["mz_timestamp", "mz_diff", "k", "v"]
    assert sorted(frame["v"]) == [10, 20]
    assert one.to_polars().equals(polars.DataFrame(one))
    assert polars.from_arrow(two.arrow()).rows() == [(two.time, -1, 1, 10)]
    assert pa.table(one) == one.arrow()


def test_without_types_arrow_infers_them_and_envelopes_have_no_table() -> None:
    reader = Reader(Query("t"))
    reader.statement()
    feed(reader, progress(5), (5, False, 2, 1, "x"), names=NAMES)
    reader.receive(progress(6))
    batch = reader.next_batch()
    assert isinstance(batch, Snapshot)
    assert batch.arrow().to_pylist() == [{"mz_timestamp": 5, "mz_diff": 2, "k": 1, "v": "x"}]
    with pytest.raises(ValueError, match="no snapshot"):
        tidewire.to_arrow([])
    for rows in ([], [(5, False, "upsert", 1, "x")]):
        upserts = Reader(Query("t", ("k",), "upsert"))
        upserts.statement()
        feed(upserts, progress(5), *rows, names=NAMES)
        upserts.receive(progress(6))
        batch = upserts.next_batch()
        assert isinstance(batch, Snapshot)
        with pytest.raises(TypeError, match="an envelope"):
            batch.arrow()


NUMBERS = st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9999, max_value=9999)
CELLS = {
    ColumnType(20): (st.none() | st.integers(-(2**63), 2**63 - 1), lambda value: value),
    ColumnType(1700, 6, 2): (NUMBERS, lambda value: value),
    ColumnType(1700, 99, 2): (NUMBERS, lambda value: f"{value:f}"),
    ColumnType(2950): (st.none() | st.uuids(), str),
    ColumnType(25): (st.none() | st.text(), lambda value: value),
    ColumnType(2951): (st.none() | st.lists(st.none() | st.uuids()), lambda ids: [i and str(i) for i in ids]),
    ColumnType(4711): (st.none() | st.timedeltas(), str),
}


@given(rows=st.lists(st.tuples(*(values for values, _ in CELLS.values()))))
def test_columns_are_equal_to_rows_converted_one_by_one(rows: list[tuple[Any, ...]]) -> None:
    names = [f"c{n}" for n in range(len(CELLS))]
    table = changes_table(names, list(CELLS), 7, rows, range(len(rows)))
    plain: list[Callable[[Any], Any]] = [convert for _, convert in CELLS.values()]
    assert table.to_pylist() == [
        {
            "mz_timestamp": 7,
            "mz_diff": diff,
            **{
                name: None if value is None else convert(value)
                for name, value, convert in zip(names, row, plain, strict=True)
            },
        }
        for diff, row in enumerate(rows)
    ]


WITHOUT = """
import sys
for name in ("numpy", "pandas", "polars", "pyarrow", "pydantic"):
    sys.modules[name] = None
import tidewire
import tidewire.aio
with tidewire.subscribe(sys.argv[1], "SELECT 1 AS one") as batches:
    snapshot = next(batches)
print(snapshot.changes)
for call in (snapshot.arrow, snapshot.to_pandas, snapshot.to_polars):
    try:
        call()
    except ImportError as error:
        print(error)
"""


def test_the_libraries_are_optional(dsn: str) -> None:
    with psycopg.connect(dsn):
        pass
    ended = subprocess.run([sys.executable, "-c", WITHOUT, dsn], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert ended.stdout.splitlines() == [
        "[Change(row=(1,), diff=1)]",
        *["Arrow tables need pyarrow: pip install pyarrow"] * 3,
    ], ended.stderr


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(Query("t"))
    reader.statement()
    feed(reader, progress(5), names=NAMES)
    reader.receive(progress(6))
    batch: Any = reader.next_batch()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"needs {library}: pip install {library}"):
        getattr(batch, f"to_{library}")()


def test_identifiers_are_text() -> None:
    table = changes_table(["u"], [ColumnType(2950)], 1, [(UUID(int=1),)], [1])
    assert table["u"].to_pylist() == [str(UUID(int=1))]
