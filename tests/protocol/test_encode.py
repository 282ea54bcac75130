"""The encoders, compared with their row-by-row equivalents and with PostgreSQL's own COPY, byte for byte."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from protocol.pgwire import encode
from protocol.pgwire.copy_options import ALL_COLUMNS, CopyOptions, Header
from protocol.pgwire.decode import parse_binary_column, parse_text_column
from protocol.pgwire.encode import CopyEncoder, OutputStyle, RowEncoder
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import column_of
from protocol.pgwire.text_columns import INTERVAL_STYLES
from protocol.pgwire.types import (
    INT4,
    INT8,
    INTERVAL,
    MZ_TIMESTAMP,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    PgType,
    array_of,
    parse_type,
)
from tests.examples import examples
from tests.protocol import columns, plain_encoder

STYLES = st.sampled_from(
    [OutputStyle(), OutputStyle("America/New_York", "escape"), OutputStyle("Asia/Kolkata"), OutputStyle("+03")]
)
TEXT_OPTIONS = st.sampled_from(
    [CopyOptions(), CopyOptions(delimiter="|", null=""), CopyOptions(delimiter="-", null="NUL")]
)
CSV_OPTIONS = st.sampled_from(
    [
        CopyOptions.csv(),
        CopyOptions.csv(header=Header.LINE, null="NULL", force_quote=ALL_COLUMNS),
        CopyOptions.csv(delimiter=";", quote="'", escape="\\", force_quote=("c0",)),
        CopyOptions.csv(delimiter="1", null="x"),
    ]
)

CALM = examples(80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

Batch = tuple[list[PgType], list[list[Any]], pa.RecordBatch]


@CALM
@given(columns.batches(), st.data(), STYLES)
def test_rows_equal_the_plain_encoder(batch: Batch, data: st.DataObject, style: OutputStyle) -> None:
    types, rows, arrow = batch
    formats = data.draw(st.lists(st.integers(0, 1), min_size=len(types), max_size=len(types)))
    assert RowEncoder(types, formats, style).encode(arrow) == plain_encoder.data_rows(types, formats, rows, style)


@CALM
@given(columns.batches(), TEXT_OPTIONS | CSV_OPTIONS | st.just(CopyOptions.binary()), STYLES)
def test_copies_equal_the_plain_encoder(batch: Batch, options: CopyOptions, style: OutputStyle) -> None:
    types, rows, arrow = batch
    encoder = CopyEncoder(types, options, style, arrow.schema.names)
    sent = encoder.header() + encoder.encode(arrow) + encoder.trailer()
    assert sent == plain_encoder.copy_rows(types, options, style, arrow.schema.names, rows)


def unframed(messages: bytes) -> list[bytes]:
    """The payloads of CopyData messages."""
    payloads, at = [], 0
    while at < len(messages):
        length = int.from_bytes(messages[at + 1 : at + 5], "big")
        assert messages[at : at + 1] == b"d"
        payloads.append(messages[at + 5 : at + 1 + length])
        at += 1 + length
    return payloads


class Oracle:
    """A PostgreSQL with a table `v` of one column, loaded by COPY BINARY and read by COPY in any format."""

    def __init__(self, connection: psycopg.Connection[Any], type: PgType) -> None:
        self.connection, self.type = connection, type
        column = re.sub(r"\(\*,\d+\)", "", str(type))
        connection.execute("drop table if exists v")
        connection.execute(f"create temp table v(v {column}, i serial)")

    def load(self, array: pa.Array) -> None:
        encoder = CopyEncoder([self.type], CopyOptions.binary())
        sent = encoder.encode(pa.record_batch([array], ["v"])) + encoder.trailer()
        with self.connection.cursor().copy("copy v(v) from stdin with (format binary)") as copy:
            copy.write(b"".join(unframed(sent)))

    def read(self, options: str) -> list[bytes]:
        with self.connection.cursor().copy(f"copy (select v from v order by i) to stdout with ({options})") as copy:
            return [bytes(data) for data in copy]


@pytest.fixture
def oracle(postgres: str) -> Any:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def samples(type: PgType, count: int) -> list[Any]:
    """Many values together, because hypothesis would send them one by one."""
    found: list[Any] = [None]

    @examples(count, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(columns.values(type))
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


# PostgreSQL keeps the scale of each bare numeric; `test_bare_numerics_...` describes what Tidewire does.
@pytest.mark.parametrize("type", [t for t in columns.TYPES if NUMERIC not in (t, t.element)], ids=str)
def test_postgresql_reads_and_writes_the_same_bytes(oracle: psycopg.Connection[Any], type: PgType) -> None:
    """PostgreSQL reads our binary format. Its text, csv and binary output of these values equals ours, and is read
    back."""
    element = type.element or type
    scalars = samples(type, 20 if type.element else 60)
    array = column_of(type, scalars)
    server = Oracle(oracle, type)
    server.load(array)
    batch = pa.record_batch([array], ["v"])
    for zone, bytea in (("UTC", "hex"), ("America/New_York", "escape"), ("Asia/Kolkata", "hex")):
        if zone != "UTC" and element.name not in ("timestamptz", "bytea"):
            continue
        oracle.execute(f"set timezone = '{zone}'; set bytea_output = '{bytea}'")
        style = OutputStyle(zone, bytea)
        for options, spelled in (
            (CopyOptions(), "format text"),
            (CopyOptions.csv(), "format csv"),
            (
                CopyOptions.csv(delimiter=" ", quote="'", force_quote=ALL_COLUMNS),
                "format csv, delimiter ' ', quote '''', force_quote *",
            ),
            (CopyOptions(delimiter=":", null="x"), "delimiter ':', null 'x'"),
        ):
            theirs = server.read(spelled)
            assert unframed(CopyEncoder([type], options, style, ["v"]).encode(batch)) == theirs
    for name in INTERVAL_STYLES if element == INTERVAL else ():
        oracle.execute(f"set intervalstyle = '{name}'")
        style = OutputStyle(interval_style=name)
        assert unframed(CopyEncoder([type], CopyOptions(), style, ["v"]).encode(batch)) == server.read("format text")
        oracle.execute("reset intervalstyle")
    for dates in (
        ("SQL, DMY", "Postgres, MDY", "German, DMY") if element.name in ("date", "timestamp", "timestamptz") else ()
    ):
        oracle.execute(f"set timezone = 'America/New_York'; set datestyle = '{dates}'")
        style = OutputStyle("America/New_York", date_style=dates)
        assert unframed(CopyEncoder([type], CopyOptions(), style, ["v"]).encode(batch)) == server.read("format text")
        oracle.execute("reset datestyle; reset timezone")
    encoder = CopyEncoder([type], CopyOptions.binary())
    binary = unframed(encoder.encode(batch) + encoder.trailer())
    assert binary == server.read("format binary")

    texts = [
        None if v is None else v.as_py()
        for v in encode.text_column(type, OutputStyle())(encode.plain_column(array, type))
    ]
    assert parse_text_column(type, pa.array(texts, pa.string())).equals(array) or has_nan(array)
    values = [None if row[2:6] == b"\xff\xff\xff\xff" else row[6:] for row in [binary[0][19:], *binary[1:-1]]]
    assert parse_binary_column(type, pa.array(values, pa.binary())).equals(array) or has_nan(array)


def has_nan(array: pa.Array) -> bool:
    return "nan" in str(array.to_pylist())


def test_bare_numerics_lose_only_the_trailing_zeros_of_their_column() -> None:
    array = column_of(NUMERIC, [Decimal("1.50"), Decimal("100"), Decimal("-0.000000000000000001"), None, Decimal(0)])
    sent = unframed(CopyEncoder([NUMERIC], CopyOptions()).encode(pa.record_batch([array], ["v"])))
    assert sent == [b"1.5\n", b"100\n", b"-0.000000000000000001\n", b"\\N\n", b"0\n"]


@pytest.mark.parametrize("arrow", [pa.int64(), pa.uint64(), pa.int16()])
def test_numeric_without_decimals_is_encoded_as_an_integer(arrow: pa.DataType) -> None:
    array = pa.array([0, 1, 32_767, None, 10_000], arrow).slice(1)
    batch = pa.record_batch([array, array], ["a", "b"])
    same = pa.record_batch([array.cast(pa.decimal128(38, 0))] * 2, ["a", "b"])
    for formats in ([0, 1], [1, 0]):
        encoder = RowEncoder([MZ_TIMESTAMP, MZ_TIMESTAMP], formats)
        assert encoder.encode(batch) == encoder.encode(same)


def test_the_greatest_timestamp_is_sent_as_numeric() -> None:
    batch = pa.record_batch([pa.array([(1 << 64) - 1], pa.uint64())], ["t"])
    assert RowEncoder([MZ_TIMESTAMP], [0]).encode(batch).endswith(b"\0\0\0\x1418446744073709551615")
    assert (
        RowEncoder([MZ_TIMESTAMP], [1])
        .encode(batch)
        .endswith(struct.pack(">hhHh5h", 5, 4, 0, 0, 1844, 6744, 737, 955, 1615))
    )


def test_rows_without_columns() -> None:
    batch = pa.record_batch([pa.nulls(3)], ["x"]).select([])
    assert batch.num_rows == 3
    assert RowEncoder([], []).encode(batch) == b"D\0\0\0\x06\0\0" * 3
    assert CopyEncoder([], CopyOptions()).encode(batch) == b"d\0\0\0\x05\n" * 3
    assert CopyEncoder([], CopyOptions()).encode(batch.slice(0, 0)) == b""


def test_large_batches_are_divided_and_joined() -> None:
    count = encode.CHUNK_ROWS * 2 + 5
    batch = pa.record_batch([pa.array(np.arange(count)), pa.array([f"row {i}" for i in range(count)])], ["a", "b"])
    sent = CopyEncoder([INT8, TEXT], CopyOptions()).encode(batch)
    assert unframed(sent) == [f"{i}\trow {i}\n".encode() for i in range(count)]


def test_wide_rows_are_divided_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_BYTES", 1000)
    rows = ["x" * (i * 37 % 1500) for i in range(50)]
    sent = CopyEncoder([TEXT], CopyOptions()).encode(pa.record_batch([pa.array(rows)], ["a"]))
    assert unframed(sent) == [f"{row}\n".encode() for row in rows]


def test_a_row_larger_than_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_BYTES", 100)
    monkeypatch.setattr(encode, "ROW_BYTES_MAX", 4000)
    with pytest.raises(PgError, match="out of memory") as refused:
        RowEncoder([TEXT], [0]).encode(pa.record_batch([pa.array(["x" * 2000])], ["a"]))
    assert refused.value.sqlstate == "54000"


def test_the_binary_header_is_in_the_message_of_the_first_row() -> None:
    batch = pa.record_batch([pa.array([1, 2], pa.int32())], ["a"])
    encoder = CopyEncoder([INT4], CopyOptions.binary())
    shared = encoder.encode_rows(batch)
    assert encoder.header() == encoder.encode(batch.slice(0, 0)) == b""
    assert unframed(encoder.encode(batch) + encoder.encode(batch))[0].startswith(b"PGCOPY\n\xff\r\n\0")
    assert unframed(encoder.trailer()) == [b"\xff\xff"]
    second = CopyEncoder([INT4], CopyOptions.binary())
    assert unframed(second.frame(shared))[1:] == unframed(shared)[1:]
    assert unframed(CopyEncoder([INT4], CopyOptions.binary()).trailer()) == [
        b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"
    ]


def test_zone_offsets_change_within_a_column() -> None:
    """Both changes of New York's clocks in 2024, and a summer beyond the table of transitions."""
    instants = [1710054000 - 1, 1710054000, 1730613600 - 1, 1730613600, 4118083200, 64060588800]
    array = column_of(TIMESTAMPTZ, [second * 1_000_000 for second in instants])
    sent = unframed(
        CopyEncoder([TIMESTAMPTZ], CopyOptions(), OutputStyle("America/New_York")).encode(
            pa.record_batch([array], ["v"])
        )
    )
    assert [row.decode().strip() for row in sent] == [
        "2024-03-10 01:59:59-05",
        "2024-03-10 03:00:00-04",
        "2024-11-03 01:59:59-04",
        "2024-11-03 01:00:00-05",
        "2100-06-30 20:00:00-04",
        "3999-12-31 19:00:00-05",
    ]


def test_unknown_columns_of_force_quote_are_refused() -> None:
    with pytest.raises(PgError, match='column "z" does not exist'):
        CopyEncoder([INT4], CopyOptions.csv(force_quote=("z",)), OutputStyle(), ["a"])


def test_arrays_contain_the_oid_of_their_elements() -> None:
    type = array_of(parse_type("varchar(3)"))
    batch = pa.record_batch([column_of(type, [["a", None], [], None])], ["v"])
    assert RowEncoder([type], [1]).encode(batch) == plain_encoder.data_rows(
        [type], [1], [[["a", None]], [[]], [None]], OutputStyle()
    )
