"""The bytes that kafka-ingest writes, and how kafka-verify-data shows them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testdrive.escapes import shown, unescaped
from testdrive.kafka.avro import AvroSchema
from testdrive.kafka.parts import NULL, Avro, Bytes, JsonText

ROW = {"type": "record", "name": "row", "namespace": "a", "fields": [{"name": "id", "type": "long"}]}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": type} for name, type in fields.items()]}


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        ("null", None, b""),
        ("boolean", True, b"\1"),
        ("int", -(2**31), b"\xff\xff\xff\xff\x0f"),
        ("long", 64, b"\x80\x01"),
        ("float", 1, b"\0\0\x80\x3f"),
        ("double", 1.5, b"\0\0\0\0\0\0\xf8\x3f"),
        ("string", "é", b"\4\xc3\xa9"),
        ("bytes", "\0é", b"\4\0\xe9"),
        ("bytes", [1, 244], b"\4\x01\xf4"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\1", b"\2\1"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2, b"\4"),
        ({"type": "int", "logicalType": "date"}, 10**9, b"\x80\xa8\xd6\xb9\x07"),
        ({"type": "string", "logicalType": "uuid"}, "x", b"\2x"),
        ({"type": "fixed", "name": "f", "size": 2}, "ab", b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", b"\2"),
        ({"type": "array", "items": "int"}, [1, 2], b"\4\2\4\0"),
        ({"type": "map", "values": "int"}, {"k": 1}, b"\2\2k\2\0"),
        (record(a="int", b=["null", "string"]), {"b": None, "a": 1}, b"\2\0"),
        (["null", "int", "long"], {"long": 1}, b"\4\2"),
        (["null", "int", "long"], {"int": 1}, b"\2\2"),
        (["string", "null"], None, b"\2"),
        (["null", ROW], {"row": {"id": 1}}, b"\2\2"),
        (["null", ROW], {"a.row": {"id": 1}}, b"\2\2"),
        (
            record(before=["null", ROW], after=["null", "a.row"]),
            {"before": None, "after": {"row": {"id": 3}}},
            b"\0\2\6",
        ),
        (["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}], {"bytes": "a"}, b"\2\2a"),
        (["null", {"type": "array", "items": "int"}], {"array": []}, b"\2\0"),
    ],
)
def test_avro_values(schema: Any, value: Any, data: bytes) -> None:
    parsed = AvroSchema(json.dumps(schema))
    assert parsed.encoded(value) == data
    assert parsed.encoded(parsed.decoded(data)) == data


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 2**31, "the value is out of range for int: 2147483648"),
        ("int", True, "the value is of type int, not true"),
        ("int", "1", 'the value is of type int, not "1"'),
        ("bytes", "€", "the value is not a string or list of bytes"),
        ("bytes", [256], "the value is not a string or list of bytes"),
        ({"type": "fixed", "name": "f", "size": 2}, "abc", "the value needs 2 bytes, not 3"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "C", "the value is one of A, B, not 'C'"),
        (record(a="int", b="int"), {"a": 1}, "the value lacks the field b"),
        (record(a="int"), {"a": 1, "c": 2}, "the value has no field c in the schema"),
        (record(a=record(x="int") | {"name": "s"}), {"a": {"x": "y"}}, 'the value.a.x is of type int, not "y"'),
        ({"type": "array", "items": "int"}, [1, None], r"the value\[1\] is of type int, not null"),
        (["null", "string"], "x", 'the value is one of null, {"string": ...}, not "x"'),
        (["null", "string"], {"int": 1}, 'the value is one of null, {"string": ...}, not {"int": 1}'),
        (["string", "int"], None, "the value is one of"),
    ],
)
def test_values_that_do_not_have_the_schema(schema: Any, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AvroSchema(json.dumps(schema)).encoded(value)


@pytest.mark.parametrize(
    "text", ["{", '"strin"', '{"type": "record"}', '{"type": "record", "name": "r", "fields": [1]}']
)
def test_invalid_schemas(text: str) -> None:
    with pytest.raises(ValueError, match="the Avro schema is not valid"):
        AvroSchema(text)


def test_schemas_refer_to_others() -> None:
    assert AvroSchema(json.dumps(record(r="a.row")), [json.dumps(ROW)]).encoded({"r": {"id": 1}}) == b"\2"


def test_blocks_with_sizes() -> None:
    assert AvroSchema('{"type": "array", "items": "int"}').decoded(b"\x03\4\2\4\2\6\0") == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "not a value"), (b"\2\2", "bytes follow"), (b"\x80", "not a value")]
)
def test_bytes_that_are_no_value(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AvroSchema('"int"').decoded(data)


@pytest.mark.parametrize("data", [b"\4", b"\1", b"\0a", b"\0\4a", b"\2a"])
def test_bytes_that_are_no_value_of_a_union(data: bytes) -> None:
    fixed = {"type": "fixed", "name": "f", "size": 2}
    with pytest.raises(ValueError, match="not a value"):
        AvroSchema(json.dumps(["string", fixed])).decoded(data)


VALUES = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.one_of(st.none(), st.builds(lambda s: {"string": s}, st.text())),
        "l": st.lists(st.builds(lambda b: b.decode("latin-1"), st.binary())),
        "m": st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    }
)
WIDE = record(
    n="long", s=["null", "string"], l={"type": "array", "items": "bytes"}, m={"type": "map", "values": "double"}
)


@given(VALUES)
def test_decoded_values_equal_the_encoded_ones(value: Any) -> None:
    schema = AvroSchema(json.dumps(WIDE))
    assert schema.decoded(schema.encoded(value)) == value


@given(st.binary())
def test_shown_bytes_are_read_as_themselves(data: bytes) -> None:
    assert unescaped(shown(data)) == data


@pytest.mark.parametrize(
    ("terminator", "text", "found"),
    [
        (":", "k:v:w", (b"k", "v:w")),
        (":", ":v", (None, "v")),
        (":", "k", (b"k", "")),
        ("::", "a:b::c", (b"a:b", "c")),
        (None, "a:b", (b"a:b", "")),
        (None, "", (None, "")),
        (None, r"\x00\xff é\n\\", (b"\0\xff \xc3\xa9\n\\", "")),
    ],
)
def test_bytes(terminator: str | None, text: str, found: tuple[bytes | None, str]) -> None:
    assert Bytes(terminator).read(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a":  1} {"b": 2}', (b'{"a":  1}', ' {"b": 2}')),
        ("1", (b"1", "")),
        ("null x", (b"null", " x")),
        (" ", (None, "")),
        (f"{NULL} 1", (None, " 1")),
    ],
)
def test_json_is_sent_as_written(text: str, found: tuple[bytes | None, str]) -> None:
    assert JsonText().read(text) == found


@pytest.mark.parametrize("text", ["{", "nope", "NaN", "'a'"])
def test_text_that_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|is not JSON"):
        JsonText().read(text)


def test_avro_has_the_id_of_its_schema() -> None:
    schema = AvroSchema('"int"')
    framed = Avro(schema, 258, lambda id: schema)
    assert framed.read(" 1 rest") == (b"\0\0\0\1\2\2", " rest")
    assert framed.read("") == (None, "")
    assert framed.show(b"\0\0\0\1\2\2") == "1"
    assert Avro(schema, None, lambda id: schema).read("1") == (b"\2", "")
    with pytest.raises(ValueError, match="does not begin with a zero byte"):
        framed.show(b"\1\0\0\0\0")


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.booleans(), st.none(), st.text())))
def test_json_is_compared_by_value(value: Any) -> None:
    written = json.dumps(value, indent=3)
    assert JsonText().show(written.encode()) == JsonText().canonical(json.dumps(value, ensure_ascii=False))[0]


def test_whole_floats_are_integers() -> None:
    assert JsonText().canonical('{"b": 1.0, "a": [2]}')[0] == JsonText().show(b'{"a":[2.0],"b":1}')


def test_fastavro_reads_the_same_values() -> None:
    data = AvroSchema(json.dumps(WIDE)).encoded({"n": 5, "s": {"string": "x"}, "l": ["é"], "m": {"k": 0.5}})
    read = fastavro.schemaless_reader(io.BytesIO(data), WIDE, None)
    assert read == {"n": 5, "s": "x", "l": [b"\xe9"], "m": {"k": 0.5}}
