"""Messages are decoded as fastavro decodes them, and broken messages fail alone."""

from __future__ import annotations

import datetime
import io
import json
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.avro.columns import UNAVAILABLE
from protocol.avro.decoder import Decoded, Decoder, Wanted
from protocol.avro.plain import DecodeError, PlainReader
from protocol.avro.schema import SchemaError, parse_schema
from protocol.avro.varints import varint_bytes
from protocol.pgwire.datetime_output import INFINITE_DATES, INFINITE_TIMESTAMPS

UTC = datetime.UTC
CONNECT = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(fields)]}


def encoded(schema: Any, values: Sequence[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        found.append(buffer.getvalue())
    return found


def decoded(messages: Sequence[bytes], writer: Any, reader: Any = None) -> Decoded:
    target = Wanted.all_of(parse_schema(json.dumps(reader or writer)))
    return Decoder(parse_schema(json.dumps(writer)), target).decode(pa.array(messages, pa.binary()))


def rows(found: Decoded) -> list[dict[str, Any]]:
    return pa.table({".".join(path): column for path, column in found.columns.items()}).to_pylist()


def decoded_value(type: Any, value: Any) -> Any:
    """The column's value for one message with one field."""
    found = decoded(encoded(record(type), [{"f0": value}]), record(type))
    assert not found.failed.any()
    return rows(found)[0]["f0"]


# -- against fastavro -------------------------------------------------------------------------------------------------

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
SCALARS = {
    "boolean": st.booleans(),
    "int": INT,
    "long": st.one_of(LONG, st.integers(-100, 100)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": TEXT,
    "bytes": st.binary(max_size=40),
}


@st.composite
def schemas_and_values(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    types: list[Any] = []
    strategies = []
    for number in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(sorted(SCALARS)))
        match draw(st.integers(0, 5)):
            case 0:
                types.append(name)
                strategies.append(SCALARS[name])
            case 1:
                types.append(["null", name])
                strategies.append(st.none() | SCALARS[name])
            case 2:
                types.append([name, "null"])
                strategies.append(SCALARS[name] | st.none())
            case 3:
                types.append({"type": "array", "items": name})
                strategies.append(st.lists(SCALARS[name], max_size=5))
            case 4:
                types.append({"type": "fixed", "name": f"x{number}", "size": 5})
                strategies.append(st.binary(min_size=5, max_size=5))
            case 5:
                types.append({"type": "enum", "name": f"e{number}", "symbols": ["A", "B", "C"]})
                strategies.append(st.sampled_from("ABC"))
    values = draw(st.lists(st.tuples(*strategies), min_size=1, max_size=20))
    return record(*types), [{f"f{i}": v for i, v in enumerate(row)} for row in values]


@given(schemas_and_values())
def test_values_are_those_that_fastavro_wrote(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, values = case
    found = decoded(encoded(schema, values), schema)
    assert not found.failed.any()
    assert rows(found) == values


@given(schemas_and_values(), st.randoms(use_true_random=False))
def test_a_broken_message_fails_as_the_plain_reader_does_and_alone(
    case: tuple[dict[str, Any], list[dict[str, Any]]], random: random.Random
) -> None:
    schema, values = case
    messages = encoded(schema, values)
    broken = random.randrange(len(messages))
    data = bytearray(messages[broken])
    match random.randrange(3):
        case 0:
            data = data[: random.randint(0, len(data))]
        case 1:
            data += random.randbytes(3)
        case _ if data:
            data[random.randrange(len(data))] = random.randrange(256)
    messages[broken] = bytes(data)
    found = decoded(messages, schema)
    type = parse_schema(json.dumps(schema))
    reader = PlainReader(messages[broken])
    try:
        value = reader.read(type)
        reader.finish()
    except DecodeError:
        value = None
    has_nul = value is not None and any("\0" in str(part) for part in _flat(value) if isinstance(part, str))
    assert found.failed[broken] == (value is None or has_nul)
    intact = np.delete(found.failed, broken)
    assert not intact.any()
    table = rows(found)
    assert [row for i, row in enumerate(table) if i != broken] == [v for i, v in enumerate(values) if i != broken]
    if not found.failed[broken]:
        assert repr(table[broken]) == repr(value)  # as text, because NaN is not equal to itself


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for inner in value.values() for part in _flat(inner)]
    return [part for inner in value for part in _flat(inner)] if isinstance(value, list) else [value]


# -- logical types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ({"type": "int", "logicalType": "date"}, datetime.date(2024, 2, 29), datetime.date(2024, 2, 29)),
        ({"type": "int", "connect.name": f"{TIME}Date"}, -1, datetime.date(1969, 12, 31)),
        ({"type": "int", "connect.name": f"{TIME}Time"}, 1_500, datetime.time(0, 0, 1, 500_000)),
        ({"type": "long", "connect.name": f"{TIME}MicroTime"}, 7, datetime.time(0, 0, 0, 7)),
        ({"type": "long", "connect.name": f"{TIME}NanoTime"}, 7_999, datetime.time(0, 0, 0, 7)),
        ({"type": "long", "connect.name": f"{TIME}Timestamp"}, 1_001, at("1970-01-01 00:00:01.001")),
        ({"type": "long", "connect.name": f"{CONNECT}Timestamp"}, -1, at("1969-12-31 23:59:59.999")),
        ({"type": "long", "connect.name": f"{TIME}MicroTimestamp"}, 1, at("1970-01-01 00:00:00.000001")),
        ({"type": "long", "connect.name": f"{TIME}NanoTimestamp"}, -1, at("1969-12-31 23:59:59.999999")),
        (
            {"type": "string", "connect.name": f"{TIME}ZonedTimestamp"},
            "2026-11-21T03:46:03.387673+02:00",
            datetime.datetime(2026, 11, 21, 1, 46, 3, 387_673, UTC),
        ),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, '{"bb":1.0, "a":[ ]}', '{"a": [], "bb": 1.0}'),
        (
            {"type": "string", "connect.name": "io.debezium.data.Uuid"},
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        ({"type": "string", "connect.name": "io.debezium.data.Enum"}, "on", "on"),
        ({"type": "map", "values": "int"}, {"b": 1, "a": 2}, '{"a": 2, "b": 1}'),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1], []], "[[1], []]"),
    ],
)  # fmt: skip
def test_logical_types(type: Any, value: Any, expected: Any) -> None:
    assert decoded_value(type, value) == expected


@given(st.decimals(-(10**8) + 1, 10**8 - 1, places=4, allow_nan=False), st.booleans())
def test_decimals_of_both_spellings(value: Decimal, connect: bool) -> None:
    schema: dict[str, Any] = {"type": "bytes", "scale": 4, "precision": 12, "logicalType": "decimal"}
    if connect:
        schema = {
            "type": "bytes",
            "connect.name": f"{CONNECT}Decimal",
            "connect.parameters": {"scale": "4", "connect.decimal.precision": "12"},
        }
    unscaled = int(value.scaleb(4))
    data = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    plain = record("bytes")
    found = decoded(encoded(plain, [{"f0": data}, {"f0": b"\0" * 5 + data if unscaled >= 0 else data}]), record(schema))
    assert [row["f0"] for row in rows(found)] == [value, value]


@given(st.integers(-5, 30), st.integers(-(10**25), 10**25))
@example(0, 953_811_474_479_390_514_041_651)
def test_decimals_of_variable_scale(scale: int, unscaled: int) -> None:
    schema = {
        "type": "record",
        "name": "v",
        "connect.name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    data = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    one = {"f0": {"scale": 1, "value": b"\x0f"}}
    found = decoded(encoded(record(schema), [one, {"f0": {"scale": scale, "value": data}}]), record(schema))
    exact = Decimal(unscaled).scaleb(-scale)
    assert rows(found)[0]["f0"] == Decimal("1.5")
    if abs(exact) >= 10**20:
        assert found.failed.tolist() == [False, True]
    else:
        assert not found.failed.any()
        assert abs(rows(found)[1]["f0"] - exact) <= Decimal(5).scaleb(-19)


def test_values_without_a_form_in_their_column_fail_with_the_field() -> None:
    schema = record("int", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1})
    messages = encoded(
        record("long", "bytes"), [{"f0": 2**31, "f1": b"\1"}, {"f0": 1, "f1": b"\x03\xe8"}, {"f0": 1, "f1": b""}]
    )
    found = decoded(messages, schema)
    assert found.failed.tolist() == [True, True, False]
    assert found.wrong_fields == {0: "f0", 1: "f1"}
    decoder = Decoder(parse_schema(json.dumps(schema)), Wanted.all_of(parse_schema(json.dumps(schema))))
    assert decoder.reason(messages[0], "f0") == "field f0: 2147483648 is out of range for type Int"
    assert decoder.reason(messages[1], "f1") == "field f1: value is out of range or invalid for its column"


@pytest.mark.parametrize(("unit", "failed"), [("millis", [True, True, False]), ("micros", [False] * 3)])
def test_the_limits_of_timestamps(unit: str, failed: list[bool]) -> None:
    """The limits of milliseconds are out of range. Those of microseconds are -infinity and infinity."""
    limits = (-1 << 63, (1 << 63) - 1, 0)
    schema = record({"type": "long", "logicalType": f"timestamp-{unit}"})
    found = decoded(encoded(record("long"), [{"f0": value} for value in limits]), schema)
    assert found.failed.tolist() == failed
    read = found.columns[("f0",)].cast(pa.int64()).to_pylist()
    assert [value for value, bad in zip(read, failed, strict=True) if not bad] == [
        value for value, bad in zip(limits, failed, strict=True) if not bad
    ]


MINUS, PLUS = "-infinity", "infinity"
_BC = "+292269055-12-02T23:00:00.000000Z"


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (("int", f"{TIME}Date"), {-625_821_272: MINUS, 19_724: None, -622_191_234: PLUS}),
        (("int", f"{CONNECT}Date"), {-2_147_472_691: MINUS, -2_147_472_692: PLUS, -2_147_472_690: None}),
        (("long", f"{TIME}Timestamp"), {-9_223_372_036_832_400: MINUS, 9_223_372_036_825_200: PLUS, 1: None}),
        (("long", f"{CONNECT}Timestamp"), {-9_223_372_036_832_400: MINUS, 9_223_372_036_825_200: PLUS}),
        (
            ("long", f"{TIME}MicroTimestamp"),
            {-9_223_372_036_832_400_000: MINUS, 9_223_372_036_825_200_000: PLUS, 9_223_372_036_825_200_001: None},
        ),
        (
            ("long", f"{TIME}NanoTimestamp"),
            {-1 << 63: MINUS, (1 << 63) - 1: PLUS, (1 << 63) - 2: None, 1_704_153_600_000_000_000: None},
        ),
        (
            ("string", f"{TIME}ZonedTimestamp"),
            {MINUS: MINUS, "2024-01-02T00:00:00.000000Z": None, PLUS: PLUS, _BC: MINUS},
        ),
    ],
)
@pytest.mark.parametrize("is_array", [False, True])
def test_infinite_values_of_debezium(type: tuple[str, str], values: dict[Any, str | None], is_array: bool) -> None:
    """What Debezium 3.6.3 writes for a PostgreSQL with infinite values, in each `time.precision.mode`."""
    scalar = {"type": type[0], "connect.name": type[1]}
    items = ["null", scalar]
    given = [*values, None]
    schema = record({"type": "array", "items": items} if is_array else items)
    messages = encoded(schema, [{"f0": given}] if is_array else [{"f0": value} for value in given])
    found = decoded(messages, schema)
    assert not found.failed.any()
    column = found.columns[("f0",)]
    column = column.flatten() if is_array else column
    is_date = column.type == pa.date32()
    texts = INFINITE_DATES if is_date else INFINITE_TIMESTAMPS
    numbers = column.view(pa.int32() if is_date else pa.int64()).to_pylist()
    assert [texts.get(number) for number in numbers] == [*values.values(), None]
    assert [number is None for number in numbers] == [value is None for value in given]


def test_infinite_timestamps_of_debezium_do_not_hide_invalid_ones() -> None:
    schema = record({"type": "string", "connect.name": f"{TIME}ZonedTimestamp"})
    found = decoded(encoded(schema, [{"f0": value} for value in (PLUS, "no time", MINUS)]), schema)
    assert found.failed.tolist() == [False, True, False]


def test_the_unavailable_value_is_a_value_like_any_other() -> None:
    assert decoded_value("bytes", UNAVAILABLE) == UNAVAILABLE
    assert decoded_value("string", UNAVAILABLE.decode()) == UNAVAILABLE.decode()


# -- schemas of writer and reader -------------------------------------------------------------------------------------


def test_fields_are_resolved_by_name_with_promotions_and_defaults() -> None:
    writer = {
        "type": "record",
        "name": "r",
        "fields": [
            {
                "name": "gone",
                "type": ["null", {"type": "record", "name": "x", "fields": [{"name": "y", "type": "string"}]}],
            },
            {"name": "b", "type": "int"},
            {"name": "a", "type": ["string", "null"]},
        ],
    }
    reader = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "a", "type": ["null", "string"]},
            {"name": "b", "type": "double"},
            {"name": "new", "type": "string", "default": "d"},
            {"name": "new2", "type": ["null", "int"]},
        ],
    }
    values = [{"gone": {"y": "z"}, "b": 2, "a": "A"}, {"gone": None, "b": 3, "a": None}]
    assert rows(decoded(encoded(writer, values), writer, reader)) == [
        {"a": "A", "b": 2.0, "new": "d", "new2": None},
        {"a": None, "b": 3.0, "new": "d", "new2": None},
    ]


def test_a_union_of_several_types_is_a_column_for_each() -> None:
    schema = record(["null", "int", "string"])
    found = decoded(encoded(schema, [{"f0": 1}, {"f0": None}, {"f0": "x"}]), schema)
    assert rows(found) == [{"f01": 1, "f02": None}, {"f01": None, "f02": None}, {"f01": None, "f02": "x"}]


def test_null_for_a_column_that_is_not_nullable_fails_its_message() -> None:
    found = decoded(encoded(record(["null", "int"]), [{"f0": 1}, {"f0": None}]), record(["null", "int"]), record("int"))
    assert found.failed.tolist() == [False, True]


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("long", "int", "Writer schema has type `Long`, but reader schema has type `Int` for field `r.f0`"),
        ("string", "int", "Writer schema has type `String`, but reader schema has type `Int` for field `r.f0`"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "Writer schema has values of type timestamp (timestamp ms) for field `r.f0`, "
            "but reader schema has timestamp (timestamp us)",
        ),
    ],
)
def test_schemas_that_do_not_match_are_refused(writer: Any, reader: Any, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        decoded([], record(writer), record(reader))
    assert str(error.value) == message


def chain(length: int, width: int) -> list[Any]:
    """Records that each have `width` fields of the type of the previous one."""
    return [
        record(*(["int"] if number == 0 else [f"r{number - 1}"]) * width) | {"name": f"r{number}"}
        for number in range(length)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "schema is not valid JSON"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":["null","r"]}]}', "recursive type r"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"b"}]}', "unknown type b"),
        ('{"type":"fixed","name":"f"}', "without a size"),
        ('{"type":"fixed","name":"f","size":4294967296}', "fixed type of more than 2147483647 bytes"),
        ('{"type":"bytes","logicalType":"decimal","scale":1e999}', "invalid precision or scale"),
        ('{"type":"enum","name":"e","symbols":[]}', "an enum without symbols"),
        ("[" * 500 + "]" * 500, "nested types"),
        (json.dumps(chain(40, 2)), "more than 20000 types"),
        (json.dumps(chain(400, 1)), "more than 64 nested types"),
    ],
)
def test_invalid_schemas_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_schema(text)


def test_items_without_bytes_are_limited() -> None:
    """A few bytes would otherwise be a value of any size."""
    schema = record({"type": "array", "items": {"type": "array", "items": "null"}})
    many = [varint_bytes(100, *(500, 0) * 100, 0), varint_bytes(1 << 62, 0, 0)]
    found = decoded([*many, varint_bytes(2, *(500, 0) * 2, 0)], schema)
    assert found.failed.tolist() == [True, True, False]
    assert json.loads(rows(found)[2]["f0"]) == [[None] * 500] * 2
    reader = PlainReader(many[0])
    with pytest.raises(DecodeError, match="more than 1000 items without bytes"):
        reader.read(parse_schema(json.dumps(schema)))


def test_a_float_that_is_not_a_number_is_kept() -> None:
    assert math.isnan(decoded_value("double", math.nan))
