"""Columns of text and binary values, compared with the same values read one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.decode import BadValue, decode_parameter, parse_binary_column, parse_text_column
from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import column_of, parse_binary, parse_text
from protocol.pgwire.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    PgType,
    numeric,
    parse_type,
)
from tests.examples import examples
from tests.protocol import columns, plain_encoder

INPUTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "scalar_inputs.json").read_text())
ORDINARY_TOO = {parse_type(spelling): inputs for spelling, inputs in INPUTS.items()}
ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata"])


def one_by_one(type: PgType, values: list[Any], read: Any) -> pa.Array | tuple[int, str, str]:
    parsed = []
    for row, value in enumerate(values):
        try:
            parsed.append(None if value is None else read(value))
        except PgError as error:
            return row, str(error.sqlstate), error.message
    return column_of(type, parsed)


def outcome(column: Any) -> pa.Array | tuple[int, str, str]:
    try:
        return column()
    except BadValue as bad:
        return bad.row, str(bad.error.sqlstate), bad.error.message


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(got, pa.Array) and isinstance(expected, pa.Array):
        assert got.type == expected.type
        assert got.equals(expected) or str(got) == str(expected)  # NaN is not equal to itself
    else:
        assert got == expected


@examples(250)
@given(st.sampled_from(columns.TYPES), st.data(), ZONES)
def test_encoded_columns_are_read_back(type: PgType, data: st.DataObject, zone: str) -> None:
    values = data.draw(st.lists(st.none() | columns.values(type), max_size=5))
    texts = [None if v is None else plain_encoder.text(type, v, OutputStyle(zone)) for v in values]
    expected = one_by_one(type, texts, lambda text: parse_text(type, text, timezone=zone))
    array = pa.array(["x", *texts], pa.string()).slice(1)
    assert_same(outcome(lambda: parse_text_column(type, array, timezone=zone)), expected)


@examples(300)
@given(st.sampled_from(sorted(ORDINARY_TOO, key=str)), st.data(), ZONES)
def test_unusual_texts_are_read_as_single_values_are(type: PgType, data: st.DataObject, zone: str) -> None:
    """The fast parser must not accept what the exact one refuses, nor read it as another value."""
    texts = data.draw(st.lists(st.none() | st.sampled_from(ORDINARY_TOO[type]), max_size=4))
    expected = one_by_one(type, texts, lambda text: parse_text(type, text, timezone=zone))
    array = pa.array(texts, pa.string())
    assert_same(outcome(lambda: parse_text_column(type, array, timezone=zone)), expected)


@examples(300)
@given(
    st.sampled_from(columns.TYPES),
    st.lists(st.text(st.sampled_from([*"0123456789.-+: TeExZabf{}\\"]), max_size=20), min_size=1, max_size=2),
)
def test_arbitrary_texts_are_read_as_single_values_are(type: PgType, texts: list[str]) -> None:
    expected = one_by_one(type, texts, lambda text: parse_text(type, text))
    assert_same(outcome(lambda: parse_text_column(type, pa.array(texts))), expected)


@examples(250)
@given(st.sampled_from(columns.TYPES), st.data())
def test_binary_columns_are_read_back(type: PgType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | columns.values(type), max_size=5))
    sent = [None if v is None else plain_encoder.binary(type, v) for v in values]
    if sent and data.draw(st.booleans()):
        sent.append(data.draw(st.binary(max_size=9)))
    expected = one_by_one(type, sent, lambda value: parse_binary(type, value))
    array = pa.array([b"x", *sent], pa.binary()).slice(1)
    assert_same(outcome(lambda: parse_binary_column(type, array)), expected)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (INT4, "0xFFFFFFFF"),
        (FLOAT8, "1e400"),
        (FLOAT8, "1e-400"),
        (FLOAT8, "infinit"),
        (DATE, "0000-01-01"),
        (TIMESTAMPTZ, "2024-03-10 02:30:00"),
        (TIMESTAMPTZ, "2024-11-03 01:30:00"),
        (BOOL, "yes"),
        (NUMERIC, "9" * 20),
        (NUMERIC, "9" * 22),
        (NUMERIC, "-" + "1" * 22),
        (NUMERIC, "8" * 22 + ".5"),
        (NUMERIC, "9" * 39),
        (NUMERIC, "1" * 155),
        (numeric(10, 2), "9" * 1_000),
        (numeric(38, 0), "9" * 38),
        (numeric(38, 0), "9" * 39),
    ],
)
def test_texts_that_arrow_would_read_otherwise(type: PgType, text: str) -> None:
    zone = "America/New_York"
    expected = one_by_one(type, [None, text], lambda value: parse_text(type, value, timezone=zone))
    array = pa.array([None, text])
    assert_same(outcome(lambda: parse_text_column(type, array, timezone=zone)), expected)


def test_errors_name_the_row() -> None:
    with pytest.raises(BadValue) as bad:
        parse_text_column(INT8, pa.array(["1", None, "x", "y"]))
    assert bad.value.row == 2
    assert bad.value.error.message == 'invalid input syntax for type bigint: "x"'


def test_parameters() -> None:
    assert decode_parameter(INT4, 0, b"12") == 12
    assert decode_parameter(INT4, 1, b"\0\0\0\x0c") == 12
    assert decode_parameter(TEXT, 0, None) is None
    assert decode_parameter(TIMESTAMPTZ, 0, b"1970-01-01", timezone="Asia/Kolkata") == -19_800_000_000
    with pytest.raises(PgError, match="unsupported format code: 2"):
        decode_parameter(INT4, 2, b"")
    with pytest.raises(PgError, match="0xff"):
        decode_parameter(TEXT, 0, b"\xff")
