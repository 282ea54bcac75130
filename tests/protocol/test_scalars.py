"""Single values: PostgreSQL's input syntax, its error messages, and the binary format."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import column_of, format_text, parse_binary, parse_text
from protocol.pgwire.types import (
    BYTEA,
    DATE,
    FLOAT4,
    INT2,
    INT4,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    PgType,
    array_of,
    numeric,
    parse_type,
)
from protocol.pgwire.utf8 import decode_utf8
from tests.examples import examples
from tests.protocol import columns, plain_encoder

INPUTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "scalar_inputs.json").read_text())
_ESCAPES = (999, 1_000, 1_001, 2_500)
_DIGITS = ["1" * 5_000, "0" * 5_000 + "1"]
_INSTANTS = [*_DIGITS, *(f"2020-01-01 {'10:00:00.'.ljust(length, '0')}" for length in (117, 118, 141, 142))]
LONG = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _INSTANTS),
    "interval": [*_DIGITS, *(f"{'1.'.ljust(length, '0')} days" for length in (250, 251))],
    "bytea": [text for number in _ESCAPES for text in (r"\\" * number, r"a\101" * number, r"\\" * number + "\\")]
    + [text for number in _ESCAPES for text in (r"\x" + "aa " * number, r"\x" + "aa " * number + "a")],
    "text[]": [
        text.replace("?", escapes * number)
        for number in _ESCAPES
        for escapes in (r"\"", r"\a", r"\ ", r"\\")
        for text in ('{"?"}', '{"?', "{?}", "{a?  ,b}", '{"?"b}', '{?"b"}', '{"a"?}')
    ],
    "int4[]": ["[1:1]" * 7 + "={1}", "[1] " * 7 + "={1}", "{" * 7 + "1" + "}" * 7],
}
"""Texts beyond the buffers of PostgreSQL, just as long, and shorter ones. Texts around what one match reads."""


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def ours(type: PgType, text: str, zone: str) -> tuple[str | None, ...]:
    try:
        return (format_text(type, parse_text(type, text, timezone=zone), OutputStyle(zone)),)
    except PgError as error:
        return str(error.sqlstate), error.message, error.detail, error.hint


def theirs(server: psycopg.Connection[Any], text: str) -> tuple[str | None, ...]:
    server.execute("truncate v")
    try:
        server.execute(sql.SQL("insert into v values ({})").format(sql.Literal(text)))
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail, error.diag.message_hint
    row = server.execute("select format('%s', v) from v").fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize(
    ("spelling", "zone"),
    [(spelling, "UTC") for spelling in INPUTS]
    + [(spelling, "America/New_York") for spelling in ("timestamptz", "timestamp", "date", "time")],
)
def test_text_is_read_as_by_postgresql(server: psycopg.Connection[Any], spelling: str, zone: str) -> None:
    server.execute(f"set timezone = '{zone}'; drop table if exists v; create temp table v(v {spelling})")
    type = parse_type(spelling)
    differences = []
    for text in INPUTS[spelling] + LONG.get(spelling, []):
        expected, got = theirs(server, text), ours(type, text, zone)
        if "json" in spelling and len(expected) > 1:  # Tidewire describes the error's position in its own words
            expected, got = expected[:2], got[:2]
        if expected != got:
            differences.append((text, got, expected))
    assert differences == []


@pytest.mark.parametrize(
    ("type", "text", "sqlstate"),
    [
        (numeric(5, 2), "NaN", "22003"),
        (NUMERIC, "-Infinity", "22003"),
        (NUMERIC, "123456789012345678901", "22003"),
        (TIMESTAMP, "now", "0A000"),
        (DATE, "today", "0A000"),
        (array_of(INT4), "{{1},{2}}", "0A000"),
        (array_of(INT4), "[0:1]={1,2}", "0A000"),
        (INTERVAL, "300 years 99999999 hours", "22008"),
        (TEXT, "a\0b", "22021"),
        (JSON, "[" * 100_000, "54001"),
    ],
)
def test_values_that_columns_cannot_store_are_refused(type: PgType, text: str, sqlstate: str) -> None:
    with pytest.raises(PgError) as refused:
        parse_text(type, text)
    assert refused.value.sqlstate == sqlstate


@examples(200)
@given(st.sampled_from(columns.TYPES), st.data())
def test_text_and_binary_forms_are_read_back(type: PgType, data: st.DataObject) -> None:
    value = data.draw(columns.values(type))
    if type.name == "bpchar" or (type.element and type.element.name == "bpchar"):
        return
    shown = plain_encoder.text(type, value, OutputStyle())
    assert same(parse_text(type, shown), value)
    assert same(parse_binary(type, plain_encoder.binary(type, value)), value)
    assert format_text(type, value) == shown


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (isinstance(left, float) and math.isnan(left) and math.isnan(right))


@examples(300)
@given(
    st.sampled_from(columns.TYPES),
    st.text(st.sampled_from([*"0123456789.-+:/ eETZPYMDjanbc{},\"\\xé'"]), max_size=14) | st.text(max_size=8),
)
def test_arbitrary_text_is_a_value_or_an_error(type: PgType, text: str) -> None:
    with suppress(PgError):
        assert len(column_of(type, [parse_text(type, text)])) == 1


@examples(300)
@given(st.sampled_from(columns.TYPES), st.data())
def test_arbitrary_bytes_are_a_value_or_an_error(type: PgType, data: st.DataObject) -> None:
    whole = plain_encoder.binary(type, data.draw(columns.values(type)))
    at = data.draw(st.integers(0, len(whole)))
    with suppress(PgError):
        value = parse_binary(type, whole[:at] + data.draw(st.binary(max_size=6)) + whole[at:])
        assert len(column_of(type, [value])) == 1


@pytest.mark.parametrize(
    ("type", "text", "data", "hint"),
    [
        (NUMERIC, "NaN", bytes.fromhex("00000000c0000000"), "Use double precision"),
        (NUMERIC, "-Infinity", bytes.fromhex("00000000f0000000"), "Use double precision"),
    ],
)
def test_refused_values_have_a_hint_in_both_formats(type: PgType, text: str, data: bytes, hint: str) -> None:
    with pytest.raises(PgError) as of_text:
        parse_text(type, text)
    with pytest.raises(PgError) as of_bytes:
        parse_binary(type, data)
    assert of_text.value.message == of_bytes.value.message
    assert (of_text.value.hint or "").startswith(hint)
    assert of_bytes.value.hint == of_text.value.hint


@pytest.mark.parametrize(
    ("type", "data", "sqlstate", "message"),
    [
        (INT4, b"\0\0\0", "08P01", "insufficient data left in message"),
        (INT4, bytes(5), "22P03", "incorrect binary data format"),
        (INT2, b"", "08P01", "insufficient data left in message"),
        (TEXT, b"\xe2\x28\xa1", "22021", 'invalid byte sequence for encoding "UTF8": 0xe2 0x28 0xa1'),
        (TEXT, b"a\0", "22021", 'invalid byte sequence for encoding "UTF8": 0x00'),
        (JSONB, b"\x02{}", "XX000", "unsupported jsonb version number 2"),
        (TIME, b"\xff" * 8, "22008", "time out of range"),
        (DATE, b"\x7f\xff\xff\xfe", "22008", "date out of range"),
        (TIMESTAMP, b"\x7f" + b"\xff" * 6 + b"\xfe", "22008", "timestamp out of range"),
        (TIMESTAMPTZ, b"\x80" + b"\0" * 6 + b"\x01", "22008", "timestamp out of range"),
        (UUID, bytes(15), "08P01", "insufficient data left in message"),
        (NUMERIC, bytes.fromhex("00000000c0000000"), "22003", 'numeric value "NaN" is not supported'),
        (NUMERIC, bytes.fromhex("0001000000000000270f"), None, ""),
        (NUMERIC, bytes.fromhex("00010000000000002710"), "22P03", 'invalid digit in external "numeric" value'),
        (NUMERIC, bytes.fromhex("0000000012340000"), "22P03", 'invalid sign in external "numeric" value'),
        (NUMERIC, bytes.fromhex("000000000000ffff"), "22P03", 'invalid scale in external "numeric" value'),
        (NUMERIC, bytes.fromhex("00017fff000000000001"), "22003", "numeric field overflow"),
        (array_of(INT4), bytes.fromhex("000000010000000000000019" + "0000000000000001"), "42804", None),
        (array_of(INT4), bytes.fromhex("000000020000000000000017" + "0000000100000001" * 2), "0A000", None),
        (array_of(INT4, 2), bytes.fromhex("000000010000000000000017" + "0000000100000001"), "0A000", None),
        (array_of(INT4), bytes.fromhex("000000010000000000000017" + "0000000100000000"), "0A000", None),
        (array_of(INT4, 2), bytes.fromhex("000000020000000000000017" + "0000000100000001"), "08P01", None),
        (array_of(INT4), bytes.fromhex("000000070000000000000017"), "54000", None),
        (array_of(INT4, 2), bytes.fromhex("000000020000000000000017" + "7fffffff00000001" * 2), "54000", None),
        (array_of(INT4), bytes.fromhex("ffffffff0000000000000017"), "22P03", "invalid number of dimensions: -1"),
    ],
)
def test_malformed_binary(type: PgType, data: bytes, sqlstate: str | None, message: str | None) -> None:
    if sqlstate is None:
        assert parse_binary(type, data) == Decimal(9999)
        return
    with pytest.raises(PgError) as refused:
        parse_binary(type, data)
    assert refused.value.sqlstate == sqlstate
    assert message is None or refused.value.message == message


def test_float4_is_rounded_once() -> None:
    """The nearest double may be half-way between two singles and is rounded itself: the decimal text decides."""
    halfway = "1.00000017881393432617187500"
    assert parse_text(FLOAT4, halfway) == 1.0000002384185791
    assert parse_text(FLOAT4, halfway[:-1] + "1") == 1.0000002384185791
    assert parse_text(FLOAT4, "1.00000017881393432617187499") == 1.0000001192092896


def test_jsonb_has_one_text_form() -> None:
    given = '{"bb": 1, "a" : [1.10, 2e2, -0], "c":{"y":"\\u00e9\\n"}, "a":null}'
    assert parse_text(JSONB, given) == '{"a": null, "c": {"y": "é\\n"}, "bb": 1}'


def test_utf8_is_required() -> None:
    assert decode_utf8("é".encode()) == "é"
    with pytest.raises(PgError, match="0xff"):
        decode_utf8(b"ok\xff")


def test_scalars_fit_their_columns() -> None:
    assert column_of(BYTEA, [b"\0", None]).type == pa.binary()
    assert column_of(DATE, [0, None]).type == pa.date32()
    assert column_of(INTERVAL, [pa.MonthDayNano((1, 2, 3000)), None])[0].as_py() == pa.MonthDayNano((1, 2, 3000))
