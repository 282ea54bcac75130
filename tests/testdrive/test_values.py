"""The text of binary values as testdrive prints it, compared with PostgreSQL's own text form."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq

from testdrive.client import Client
from testdrive.values import printed, text_form
from tests.examples import examples


@pytest.fixture(scope="module")
def connection(postgres: str) -> Iterator[pq.abc.PGconn]:
    connection = pq.PGconn.connect(postgres.encode())
    yield connection
    connection.finish()


def check(connection: pq.abc.PGconn, expressions: list[str]) -> None:
    sql = " UNION ALL ".join(f"SELECT {expression}" for expression in expressions).encode()
    binary = connection.exec_params(sql, [], result_format=1)
    text = connection.exec_params(sql, [], result_format=0)
    assert binary.status == pq.ExecStatus.TUPLES_OK, binary.get_error_message()
    for row in range(len(expressions)):
        value, expected = binary.get_value(row, 0), text.get_value(row, 0)
        assert value is not None
        assert expected is not None
        assert text_form(binary.ftype(0), value) == expected.decode(), expressions[row]


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "'x'::\"char\"",
        "'name'::name",
        r"'\x00ff41'::bytea",
        "(-32768)::int2",
        "9223372036854775807::int8",
        "4294967295::oid",
        "'a''b'::varchar(5)",
        "'ab'::char(5)",
        """'{"b": [1, 2.50, null]}'::jsonb""",
        "'{\"b\" :1}'::json",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid",
        "'NaN'::float4",
        "'-Infinity'::float8",
        "'-0'::float8",
        "'NaN'::numeric",
        "'-Infinity'::numeric",
        "'0.0000'::numeric",
        "'0.00000000000001'::numeric",
        "'12340000.5'::numeric",
        "1e30::numeric",
        "'infinity'::date",
        "'0044-03-15 BC'::date",
        "'12345-06-07'::date",
        "'24:00'::time",
        "'12:00:00.12'::time",
        "'-infinity'::timestamp",
        "'0001-01-01 00:00:00.000001 BC'::timestamp",
        "'1999-12-31 23:59:59.5'::timestamptz",
        "'{}'::int[]",
        "'[2:3]={1,NULL}'::int[]",
        "'{{1,2},{3,4}}'::int8[]",
        """'{a,"","null","b c","d\\"e","{"}'::text[]""",
        "'{t,f}'::bool[]",
        "'{2020-01-01 00:00:00.5,infinity}'::timestamp[]",
        "ROW(1, NULL, 'a b', '', 'q\"')",
    ],
)
def test_text_form(connection: pq.abc.PGconn, expression: str) -> None:
    check(connection, [expression])


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=1, max_size=50))
@examples(30)
def test_float8(connection: pq.abc.PGconn, values: list[float]) -> None:
    # From 2**53 on, PostgreSQL may print another one of the shortest representations of the same number.
    check(connection, [f"'{value!r}'::float8" for value in values if abs(value) < 2**53] or ["1.0::float8"])


@given(st.lists(st.floats(-(2**24), 2**24, width=32), min_size=1, max_size=50))
@examples(30)
def test_float4(connection: pq.abc.PGconn, values: list[float]) -> None:
    check(
        connection,
        [f"'{value!r}'::float8::float4" for value in values if value == 0 or abs(value) > 1e-37] or ["1::float4"],
    )


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
@examples(30)
def test_numeric(connection: pq.abc.PGconn, values: list[Decimal]) -> None:
    check(connection, [f"'{value}'::numeric" for value in values if abs(value.adjusted()) < 500] or ["1::numeric"])


@given(st.lists(st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)), min_size=1, max_size=50))
@examples(30)
def test_timestamps(connection: pq.abc.PGconn, values: list[datetime.datetime]) -> None:
    check(connection, [f"'{value.isoformat()}'::timestamp" for value in values])
    check(connection, [f"'{value.isoformat()}Z'::timestamptz" for value in values])
    check(connection, [f"'{value.isoformat()}'::timestamp - interval '4000 years'" for value in values])


@given(st.lists(st.tuples(st.integers(-30, 30), st.integers(-40, 40), st.integers(-(10**12), 10**12)), min_size=1))
@examples(30)
def test_intervals(connection: pq.abc.PGconn, values: list[tuple[int, int, int]]) -> None:
    check(connection, [f"interval '{m} months {d} days {us} microseconds'" for m, d, us in values])


def test_the_text_forms_in_scripts(postgres: str) -> None:
    client = Client(postgres)
    sql = r"""SELECT true, NULL, '\xc341275c'::bytea, '2020-01-01 00:00:00.5'::timestamp,
        '2020-01-01 00:00:00.00001'::timestamp, '2020-01-01 02:00:00+02'::timestamptz, '{t}'::bool[]"""
    [row] = client.query(sql, 5).rows
    client.close()
    assert row == (
        "true",
        "<null>",
        r"\xc3A\'\\",
        "2020-01-01 00:00:00.500",
        "2020-01-01 00:00:00.000010",
        "2020-01-01 00:00:00 UTC",
        "{t}",
    )


@pytest.mark.parametrize(
    ("oid", "data"),
    [
        (600, b""),  # point: an unknown type
        (16, b"\2"),
        (20, b"\0\0\0\1"),
        (25, b"\xff"),
        (1700, b"\0\1\0\0\0\0\0\0"),
        (1007, struct.pack("!iiiiiii", 1, 0, 23, 1, 1, 4, 7) + b"more"),
        (1114, b""),
        (2950, b"short"),
    ],
)
def test_invalid_values_are_refused(oid: int, data: bytes) -> None:
    with pytest.raises(ValueError, match=f"oid {oid}"):
        printed(oid, data)


def test_shortest_floats_are_read_back() -> None:
    for value in (math.pi, 5e-324, 1e23):
        assert float(text_form(701, struct.pack("!d", value))) == value
