"""COPY FROM: encoded rows are read back for any division of the bytes, and both parsers equal each other and
PostgreSQL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from protocol.pgwire import copy_in, copy_text
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.copy_options import ALL_COLUMNS, CopyOptions, Header, OptionValue
from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import DATE, FLOAT8, INT4, INT8, TEXT, TIMESTAMP, parse_type
from tests.examples import examples
from tests.protocol import columns
from tests.protocol.test_encode import unframed

COLUMNS = (("a", INT4), ("b", TEXT), ("c", DATE))
OPTIONS = st.sampled_from(
    [
        CopyOptions(),
        CopyOptions(delimiter="|", null="NUL", header=Header.LINE),
        CopyOptions.csv(),
        CopyOptions.csv(header=Header.MATCH, null="NULL"),
        CopyOptions.csv(delimiter=";", quote="'", escape="\\", force_quote=ALL_COLUMNS),
        CopyOptions.binary(),
    ]
)

Outcome = list[pa.Array] | tuple[str, str, str | None, str | None]


def decoded(chunks: list[bytes], options: CopyOptions, given: Any = COLUMNS) -> Outcome:
    """The columns of all batches, or the error's message."""
    decoder = CopyDecoder(given, options, "t")
    try:
        batches = [batch for chunk in chunks for batch in decoder.feed(chunk)] + decoder.finish()
    except PgError as error:
        return str(error.sqlstate), error.message, error.hint, error.where
    if not batches:
        return [pa.array([], type.arrow) for _, type in given]
    table = pa.Table.from_batches(batches)
    assert table.column_names == [f"c{index}" for index in range(len(given))]
    return [column.combine_chunks() for column in table.columns]


def assert_same(got: Outcome, expected: Outcome) -> None:
    if isinstance(got, list) and isinstance(expected, list):  # compared as text, because NaN is not equal to itself
        assert [c.to_string(window=99) for c in got] == [c.to_string(window=99) for c in expected]
    else:
        assert got == expected


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@examples(120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(columns.batches(3), OPTIONS, st.lists(st.integers(0, 1 << 16), max_size=4), st.sampled_from([1, 16, 1 << 21]))
def test_encoded_rows_are_read_back(batch: Any, options: CopyOptions, cuts: list[int], gather: int) -> None:
    types, _, arrow = batch
    names = [f"column {index}" for index in range(len(types))]
    encoder = CopyEncoder(types, options, names=names)
    data = b"".join(unframed(encoder.header() + encoder.encode(arrow) + encoder.trailer()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_in, "GATHER_BYTES", gather)
        got = decoded(cut(data, cuts), options, list(zip(names, types, strict=True)))
    expected = [c.cast(t.arrow) for c, t in zip(arrow.columns, types, strict=True)]
    assert_same(got, expected)


# ---- any bytes at all

_COMMON = [
    b"1",
    b"x",
    b"2020-01-01",
    b"\n",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xc3\xa9",
    b"\xff",
    b"\0",
    b"\\",
    b"\\.",
    b"\\.\n",
]
SOUP = {
    "text": [
        *_COMMON,
        *(b"\t", b"\t", b"1\tx\t2020-01-01\n", b"2\t\\N\t\\N\n", b"\\N", b"\\x41", b"\\101", b"\\t", b"\\\n"),
    ],
    "csv": [*_COMMON, *(b",", b",", b"1,x,2020-01-01\n", b'2,"a\nb",\n', b'"', b'""', b'"q"', b"\n\n")],
}


def soup(format: str) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(SOUP[format]), max_size=14).map(b"".join)


SOUPS = st.sampled_from(["text", "csv"]).flatmap(
    lambda format: st.tuples(
        soup(format),
        st.sampled_from([CopyOptions(), CopyOptions(header=Header.MATCH)])
        if format == "text"
        else st.sampled_from(
            [
                CopyOptions.csv(),
                CopyOptions.csv(header=Header.LINE),
                CopyOptions.csv(escape="\\"),
                CopyOptions.csv(force_null=("b",), force_not_null=("c",)),
            ]
        ),
    )
)


NUMBERS = (("a", parse_type("smallint")), ("b", parse_type("integer")), ("c", parse_type("bigint")))
NUMBER = st.one_of(
    st.sampled_from(["0x", "0X1f", "-0x1", "0xffff", "0xffffffff", "0x8000000000000000", "0b1", "0o7", "1e3", "NULL"]),
    st.lists(st.sampled_from([*"0017-+_ \t\v.x", "32767", "32768", "9223372036854775807"]), max_size=4).map("".join),
    st.integers(-(2**63) - 1, 2**63).map(str),
    st.integers(-3, 3).map(str),
)


@examples(400)
@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=4), st.sampled_from(["", "0", "NULL", "0x1"]))
def test_numbers_of_the_fast_parser_equal_those_of_the_exact_parser(rows: list[Any], null: str) -> None:
    data = "".join(",".join(row) + "\n" for row in rows).encode()
    with pytest.MonkeyPatch.context() as patch:
        fast = decoded([data], CopyOptions.csv(null=null), NUMBERS)
        patch.setattr(copy_text.Lines, "_ordinary", lambda *_: None)
        assert_same(fast, decoded([data], CopyOptions.csv(null=null), NUMBERS))


@examples(400)
@given(SOUPS, st.lists(st.integers(0, 100), max_size=3), st.sampled_from([1, 8, 1 << 21]), st.booleans())
def test_the_fast_parser_equals_the_exact_parser(given: Any, cuts: list[int], gather: int, windows: bool) -> None:
    data, options = given
    if windows:
        data = data.replace(b"\r", b"").replace(b"\n", b"\r\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_in, "GATHER_BYTES", gather)
        fast = decoded(cut(data, cuts), options)
        patch.setattr(copy_text.Lines, "_ordinary", lambda *_: None)
        assert_same(fast, decoded([data], options))


@examples(400)
@given(SOUPS, st.lists(st.integers(0, 100), max_size=3), st.integers(2, 6), st.integers(1, 3), st.integers(1, 3))
def test_the_exact_parser_reads_in_parts(given: Any, cuts: list[int], window: int, records: int, parts: int) -> None:
    data, options = given
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_text.Lines, "_ordinary", lambda *_: None)
        whole = decoded([data], options)
        patch.setattr(copy_in, "GATHER_BYTES", 1)
        patch.setattr(copy_text, "WINDOW", window)
        patch.setattr(copy_text, "RECORDS_MAX", records)
        patch.setattr(copy_text, "PARTS_MAX", parts)
        assert_same(decoded(cut(data, cuts), options), whole)


@examples(300)
@given(st.binary(max_size=30), st.lists(st.integers(0, 200), max_size=3), st.sampled_from([1, 1 << 21]), st.data())
def test_arbitrary_binary_data_gives_rows_or_an_error(
    noise: bytes, cuts: list[int], gather: int, data: st.DataObject
) -> None:
    rows = b"".join(data.draw(st.lists(st.sampled_from(BINARY_ROWS), max_size=4)))
    at = data.draw(st.integers(0, len(rows)))
    whole = data.draw(st.sampled_from([SIGNATURE, SIGNATURE, SIGNATURE[:12], b""])) + rows[:at] + noise + rows[at:]
    once = decoded([whole], CopyOptions.binary())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_in, "GATHER_BYTES", gather)
        assert_same(decoded(cut(whole, cuts), CopyOptions.binary()), once)


# ---- against PostgreSQL

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def row(*values: bytes | None) -> bytes:
    sized = (struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v for v in values)
    return struct.pack(">h", len(values)) + b"".join(sized)


ONE = struct.pack(">i", 1)
BINARY_ROWS = [row(ONE, b"x", ONE), row(ONE, None, None), row(None, b"yy", ONE), b"\xff\xff"]

Pairs = tuple[tuple[str, OptionValue], ...]
CSV: Pairs = (("format", "csv"),)
BINARY: Pairs = (("format", "binary"),)
CASES: list[tuple[Pairs, bytes]] = [
    *[
        ((), data)
        for data in (
            b"1\tx\n",
            b"1\tx\t2020-01-01\ty\n",
            b"1\tx\t2020-01-01\nx\ty\t2020-01-01\n",
            b"1\t\xff\t2020-01-01\n",
            b"x\t\t\n1\t\xff\t2020-01-01\n",
            b"1\t\\377\t2020-01-01\n",
            b"1\tx\0\t2020-01-01\n",
            b"1\tx\\000\t2020-01-01\n",
            b"1\tx\\.\n",
            b"1\tx\t2020-01-01\n\\.\nfoo\n",
            b"1\tx\t2020-01-01\n\\.foo\n",
            b"1\tx\t2020-01-01\n\\.",
            b"1\tx\t2020-01-01\n\\.\r\n",
            b"1\tx\t2020-01-01\r\n1\ty\t2020-01-01\n",
            b"1\tx\t2020-01-01\r\n1\ty\t2020-01-01\r\n",
            b"1\tx\t2020-01-01\n1\ty\t2020-01-01\r\n",
            b"1\tx\t2020-01-01\r1\ty\t2020-01-01\n",
            b"1\tx\t2020-01-01\r1\ty\t2020-01-01\r",
            b"1\tx\t2020-01-01\r\n\\.\n",
            b"1\tx\t2020-01-01\r\n\\.x",
            b"1\tx\t2020-01-01\\",
            b"1\tx\\\ny\\\tz\\\\\t2020-01-01",
            b"\n",
            b"",
            b"1\t\\b\\f\\n\\r\\t\\v\\7\\78\\x4a\\x\\q\\N\t\\N",
            b"1\t" + "é".encode() * 60 + b"\n",
            b"x" * 200 + b"\ta\tb\n",
            b"1\t\t\n",
            b"1\t\\N\t\\N\n\\N\t\t\\N\n",
            b"\\\\N\tx\t\\N\n",
            b"1\tx\t2020-01-01\n2\ty\t2020-02-30\n",
        )
    ],
    *[
        (CSV, data)
        for data in (
            b'1,"x\ny",2020-01-01\n1,z,x\n',
            b'1,z,2020-01-01\n1,"x\ny",2020-01-01\n1,z,x\n',
            b'1,"x,2020-01-01\n',
            b'1,x"a,b"y,2020-01-01\n',
            b"\\.\n",
            b"1,x,2020-01-01\n\\.\nfoo",
            b"1,x,2020-01-01\n\\.x,y\n",
            b"1,\\.,2020-01-01\n",
            b'"\\."\n',
            b"1,x,2020-01-01\r1,x,2020-01-01\n",
            b'1,x,2020-01-01\n1,"x\r\n",2020-01-01\r\n',
            b'1,"x""y",2020-01-01',
            b"1,\xff,2020-01-01\n",
            b"1,x,2020-01-01\n\n",
            b'1,"",\n,"",2020-01-01\n',
            b'1,"a"b"c",2020-01-01\n',
            b'1,"a""",2020-01-01\n"2","b,",""\n',
        )
    ],
    ((*CSV, ("escape", "\\")), b'1,"a\\"b\\\\c\\d""e",2020-01-01\n'),
    ((*CSV, ("header", "match")), b"a,b\n"),
    ((*CSV, ("header", "match")), b"a,,c\n"),
    ((*CSV, ("header", "match")), b"a,B,c\n"),
    ((*CSV, ("header", "match")), b"a,b,c"),
    ((*CSV, ("header", True)), b"a,B,c\n1,x,2020-01-01\n2,y,z\n"),
    ((("header", True),), b""),
    ((("header", "match"),), b""),
    ((*CSV, ("force_null", ["b"])), b'1,"",\n'),
    ((*CSV, ("force_not_null", ["b"])), b"1,,\n"),
    ((*CSV, ("force_not_null", ["c"])), b"1,x,\n"),
    ((*CSV, ("force_null", ["b"]), ("force_not_null", ["b", "c"])), b'1,,2020-01-01\n2,"",2020-01-01\n3,,\n'),
    ((*CSV, ("null", "N"), ("force_null", ["b", "c"])), b'1,"N",N\n'),
    ((("delimiter", "|"), ("null", "NUL")), b"1|NUL|NUL\n2|a\tb|2020-01-01\n3|\\||NUL\n"),
    *[
        (BINARY, data)
        for data in (
            b"",
            b"x" * 30,
            SIGNATURE[:11],
            SIGNATURE[:11] + b"\0\1\0\0",
            SIGNATURE[:11] + b"\0\2\0\0",
            SIGNATURE[:15],
            SIGNATURE[:15] + b"\0\0\0\4",
            SIGNATURE[:15] + b"\0\0\0\1x" + BINARY_ROWS[0],
            SIGNATURE[:15] + b"\xff\xff\xff\xff",
            SIGNATURE,
            SIGNATURE + b"".join(BINARY_ROWS),
            SIGNATURE + b"".join(BINARY_ROWS[:3]),
            SIGNATURE + BINARY_ROWS[0] + b"\xff\xffx",
            SIGNATURE + row(ONE, b"x"),
            SIGNATURE + row(ONE, b"x", b"abc"),
            SIGNATURE + row(ONE, b"x", b"abcde"),
            SIGNATURE + row(ONE, b"\xff", b"abcd"),
            SIGNATURE + BINARY_ROWS[0] + row(ONE, b"\xff", ONE),
            SIGNATURE + BINARY_ROWS[0][:-2],
            SIGNATURE + BINARY_ROWS[0][:4],
            SIGNATURE + b"\0",
            SIGNATURE + struct.pack(">hi", 3, -2),
            SIGNATURE + b"\xff\xfe",
        )
    ],
]


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("create temp table t(a int, b text, c date)")
        yield connection


def theirs(server: psycopg.Connection[Any], pairs: Pairs, data: bytes) -> Any:
    def spelled(value: OptionValue) -> str:
        if isinstance(value, list):
            return f"({', '.join(value)})"
        return str(value) if isinstance(value, bool) else f"'{value}'"

    options = ", ".join(f"{name} {spelled(value)}" for name, value in pairs) or "format text"
    server.execute("truncate t")
    try:
        with server.cursor().copy(f"copy t from stdin with ({options})") as copy:
            copy.write(data)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_hint, error.diag.context
    return server.execute("select a, b, c from t").fetchall()


@pytest.mark.parametrize(("pairs", "data"), CASES, ids=lambda value: None)
def test_rows_and_errors_equal_postgresql(server: psycopg.Connection[Any], pairs: Pairs, data: bytes) -> None:
    expected = theirs(server, pairs, data)
    options = CopyOptions.of(pairs, reading=True)
    for chunks in ([data], [data[at : at + 1] for at in range(len(data))]):
        got = decoded(chunks, options)
        assert (list(zip(*(c.to_pylist() for c in got), strict=True)) if isinstance(got, list) else got) == expected


@pytest.mark.parametrize("format", ["text", "csv"])
def test_random_text_equals_postgresql(server: psycopg.Connection[Any], format: str) -> None:
    @examples(200, derandomize=True)
    @given(soup(format))
    def check(data: bytes) -> None:
        # Invalid UTF-8 is tested by CASES: PostgreSQL checks the encoding some distance ahead of the rows that it
        # reads.
        data = data.replace(b"\xff", b"").replace(b"\0", b"")
        expected = theirs(server, (("format", format),), data)
        got = decoded([data], CopyOptions.of([("format", format)], reading=True))
        assert (list(zip(*(c.to_pylist() for c in got), strict=True)) if isinstance(got, list) else got) == expected

    check()


# ---- the way in batches


@pytest.mark.parametrize("options", [CopyOptions(), CopyOptions.csv(), CopyOptions.binary()])
def test_large_data_is_returned_in_batches(options: CopyOptions) -> None:
    """Large data is read by the fast parser, in several batches, and each row once."""
    types = (INT8, TEXT, FLOAT8, TIMESTAMP)
    count = 90_000
    batch = pa.record_batch(
        [
            pa.array(range(count)),
            pa.array([None if i % 7 == 0 else f'na,me "{i}"\n' for i in range(count)]),
            pa.array([i / 8 for i in range(count)]),
            pa.array([i * 1_000_003 for i in range(count)]).view(pa.timestamp("us")),
        ],
        ["c0", "c1", "c2", "c3"],
    )
    encoder = CopyEncoder(types, options)
    data = b"".join(unframed(encoder.encode(batch) + encoder.trailer()))
    decoder = CopyDecoder([(f"c{i}", type) for i, type in enumerate(types)], options, "t")
    batches = [got for at in range(0, len(data), 65_536) for got in decoder.feed(data[at : at + 65_536])]
    assert len(batches) > 1
    batches += decoder.finish()
    assert all(got.num_rows <= copy_in.BATCH_ROWS for got in batches)
    assert pa.Table.from_batches(batches).combine_chunks().equals(pa.Table.from_batches([batch]))


def test_an_error_names_its_line_after_many_good_lines() -> None:
    good = b"".join(b"%d\tx\t2020-01-01\n" % number for number in range(200_000))
    got = decoded([good, b"1\tx\tnever\n"], CopyOptions())
    assert got == (
        "22007",
        'invalid input syntax for type date: "never"',
        None,
        'COPY t, line 200001, column c: "never"',
    )


def test_a_record_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_in, "GATHER_BYTES", 100)
    monkeypatch.setattr(copy_in, "RECORD_BYTES_MAX", 5000)
    got = decoded([b'1,"'] + [b"x" * 90] * 200, CopyOptions.csv())
    assert got[:2] == ("54000", "out of memory")


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(PgError, match='column "z" of relation "t" does not exist'):
        CopyDecoder(COLUMNS, CopyOptions.csv(force_null=("z",)), "t")


def test_the_lines_of_earlier_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a COPY does not grow with the number of its rows, also if records have several lines."""
    monkeypatch.setattr(copy_text, "LINES_MAX", 100)
    monkeypatch.setattr(copy_in, "GATHER_BYTES", 1_000)
    decoder = CopyDecoder((("a", TEXT),), CopyOptions.csv(), "t")
    rows = sum(batch.num_rows for _ in range(300) for batch in decoder.feed(b'"two\nlines"\n' * 10))
    rows += sum(batch.num_rows for batch in decoder.finish())
    assert rows == 3_000

    def where(row: int) -> str | None:
        error = PgError(SqlState.UNIQUE_VIOLATION, "duplicate")
        return decoder.located(error, row, shows_text=False).where

    # PostgreSQL does not count the line end in the first record, because it does not know the kind of line end yet.
    assert where(rows - 1) == f"COPY t, line {2 * rows - 1}"
    assert where(0) is None
