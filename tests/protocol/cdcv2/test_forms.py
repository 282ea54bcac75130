"""Messages in Avro and JSON: round trips, comparison with fastavro, and bytes that are no messages."""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.avro.encoder import EncodedColumn, encoded_records, fields_of
from protocol.avro.schema import SchemaError, parse_schema
from protocol.avro.varints import decoded_varints, encoded_varints, varint_bytes
from protocol.cdcv2.avro_form import AvroDecoder, AvroEncoder, CdcSchema, schema_text
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder, _Found
from protocol.cdcv2.messages import (
    DIFF_FIELD,
    END,
    MESSAGE_BYTES,
    MESSAGE_UPDATES,
    TIME_FIELD,
    Progress,
    message_bounds,
)
from protocol.cdcv2.reader import Reader
from protocol.pgwire.types import parse_type
from tests.examples import examples

UTC = datetime.UTC
LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-100, 100))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": LONG,
    "float4": st.floats(width=32, allow_nan=False),
    "float8": st.floats(allow_nan=False),
    "text": TEXT,
    "bytea": st.binary(max_size=20),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "numeric(12,3)": st.decimals(-(10**8), 10**8, places=3),
    "jsonb": st.sampled_from(["1", '"a\\n"', "null", '"null"', '{"a": [1, 2.50]}', '{"tidewire.json": "null"}']),
    "json": st.sampled_from(
        [
            *("1", '"a\\n"', "null", " null\t", " [{}] ", "[\n]", '"\\ud800"', '{"a":1}', '{"a" : 1}'),
            *('{"a":\n1e2,\r"a":[] }', '{"tidewire.json":"1"}', '{"tidewire\\u002ejson": "1"}'),
            '{"tidewire.json":1, "tidewire.json":"1"}',
        ]
    ),
    "uuid": st.uuids().map(str),
}
TYPES = list(VALUES)


def columns_of(*types: str, nullable: bool = True) -> list[EncodedColumn]:
    return [EncodedColumn(f"f{i}", parse_type(type), nullable) for i, type in enumerate(types)]


def schema_of(columns: Sequence[EncodedColumn]) -> pa.Schema:
    return pa.schema([*(pa.field(f"c{i}", c.type.arrow) for i, c in enumerate(columns)), TIME_FIELD, DIFF_FIELD])


def table_of(columns: Sequence[EncodedColumn], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Updates: the values of the columns, time, diff."""
    schema = schema_of(columns)
    return pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)], schema)


@st.composite
def tables(draw: st.DrawFn, among: Sequence[str] = TYPES) -> tuple[list[EncodedColumn], pa.Table]:
    types = draw(st.lists(st.sampled_from(list(among)), min_size=0, max_size=4))
    columns = columns_of(*types)
    count = draw(st.integers(0, 12))
    arrays = [
        pa.array(draw(st.lists(st.none() | VALUES[type], min_size=count, max_size=count)), column.type.arrow)
        for type, column in zip(types, columns, strict=True)
    ]
    times = draw(st.lists(st.integers(0, 2**63 - 1), min_size=count, max_size=count))
    diffs = draw(st.lists(LONG, min_size=count, max_size=count))
    return columns, pa.table([*arrays, pa.array(times, pa.int64()), pa.array(diffs, pa.int64())], schema_of(columns))


def progress(counts: dict[int, int], lower: Sequence[int] = (0,), upper: Sequence[int] = (10,)) -> Progress:
    return Progress.of(lower, upper, list(counts.items()))


def avro_decoder(columns: Sequence[EncodedColumn]) -> AvroDecoder:
    return AvroDecoder(CdcSchema.of(parse_schema(schema_text(columns))))


def by_fastavro(schema: str, *values: Any) -> pa.BinaryArray:
    parsed, found = fastavro.parse_schema(json.loads(schema)), []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        found.append(buffer.getvalue())
    return pa.array(found, pa.binary())


def statements_of(found: Decoded) -> list[tuple[int, int, dict[int, int]]]:
    return [
        (s.lower, s.upper, dict(zip(s.times.tolist(), s.counts.tolist(), strict=True))) for s in found.statements
    ]  # fmt: skip


# -- integers ---------------------------------------------------------------------------------------------------------


@given(st.lists(LONG))
@examples(100)
def test_varints_are_those_of_fastavro(values: list[int]) -> None:
    found = encoded_varints(np.array(values, np.int64))
    assert found.to_pylist() == by_fastavro('"long"', *values).to_pylist() == [varint_bytes(v) for v in values]
    decoded = decoded_varints(b"".join(found.to_pylist()))
    assert decoded is not None
    assert decoded.tolist() == values


@pytest.mark.parametrize("data", [b"\x80", b"\x02\xff", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"])
def test_varints_that_do_not_end_or_are_too_long_are_refused(data: bytes) -> None:
    assert decoded_varints(data) is None


# -- Avro -------------------------------------------------------------------------------------------------------------


@given(tables())
@examples(150)
def test_records_are_read_by_fastavro(example: tuple[list[EncodedColumn], pa.Table]) -> None:
    columns, updates = example
    rows = updates.select(range(len(columns)))
    found = encoded_records(columns, rows) if columns else pa.array([b""] * rows.num_rows, pa.binary())
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields_of(columns)})
    for data, row in zip(found.to_pylist(), rows.to_pylist(), strict=True):
        buffer = io.BytesIO(data)
        record: Any = fastavro.schemaless_reader(buffer, schema, None)
        assert buffer.read() == b""
        for position, column in enumerate(columns):
            expected, own = row[f"c{position}"], record[column.name]
            if isinstance(expected, datetime.datetime):
                expected = expected.replace(tzinfo=UTC)
            assert (str(own) if column.type.name == "uuid" and own is not None else own) == expected


@given(tables([type for type in TYPES if type != "json"]))  # which is jsonb without a column list
@examples(150)
def test_updates_come_back_from_avro(example: tuple[list[EncodedColumn], pa.Table]) -> None:
    columns, updates = example
    messages = list(AvroEncoder(columns, b"\0\0\0\0\7").updates(updates))
    found = avro_decoder(columns).decode(pa.array(messages, pa.binary()), skip=5)
    assert not found.failed.any()
    expected = [c.cast(pa.int32()) if pa.types.is_int16(c.type) else c for c in updates.columns]
    assert found.updates.equals(pa.table(expected, found.updates.schema))


def test_messages_of_fastavro_have_the_form_of_materialize() -> None:
    columns = columns_of("text", "int4")
    first = [
        {"data": {"f0": "a", "f1": None}, "time": 4, "diff": 1},
        {"data": {"f0": "b", "f1": 7}, "time": 5, "diff": -2},
    ]
    second = ("com.materialize.cdc.progress", {"lower": [0], "upper": [3], "counts": [{"time": 2, "count": 9}]})
    third = ("com.materialize.cdc.progress", {"lower": [3], "upper": [], "counts": []})
    found = avro_decoder(columns).decode(by_fastavro(schema_text(columns), first, second, [], third))
    assert not found.failed.any()
    assert [tuple(row.values()) for row in found.updates.to_pylist()] == [("a", None, 4, 1), ("b", 7, 5, -2)]
    assert statements_of(found) == [(0, 3, {2: 9}), (3, END, {})]


@given(st.integers(0, 2**32), st.integers(1, 40))
@examples(40)
def test_arrays_with_and_without_sizes_of_blocks_are_the_same(seed: int, messages: int) -> None:
    """fastavro writes no sizes: few arrays are walked item by item, many together."""
    random, columns = Random(seed), columns_of("text", "int8")
    schema, expected, own, theirs = schema_text(columns), [], [], []
    for _ in range(messages):
        count = random.randrange(90)
        rows = [("x" * random.randrange(70), random.randrange(100), random.randrange(2**40), 1) for _ in range(count)]
        own += list(AvroEncoder(columns).updates(table_of(columns, rows)))
        theirs.append([{"data": {"f0": a, "f1": b}, "time": t, "diff": d} for a, b, t, d in rows])
        expected += rows
    for data in (pa.array(own, pa.binary()), by_fastavro(schema, *theirs)):
        found = avro_decoder(columns).decode(data)
        assert not found.failed.any()
        assert [tuple(row.values()) for row in found.updates.to_pylist()] == expected


def test_blocks_of_one_message_are_found_as_those_of_many() -> None:
    """Those of few messages are found one by one, because a message may have many of them."""
    random, columns = Random(3), columns_of("int4", nullable=False)
    parts, numbers = [varint_bytes(0)], list[int]()
    while len(numbers) < 300:
        items = [random.randrange(1_000) for _ in range(random.randint(1, 3))]
        data = b"".join(varint_bytes(number, 1, 1) for number in items)
        parts += [varint_bytes(len(items)) if random.random() < 0.5 else varint_bytes(-len(items), len(data)), data]
        numbers += items
    message = b"".join([*parts, varint_bytes(0)])
    for count in (1, 20):
        found = avro_decoder(columns).decode(pa.array([message] * count, pa.binary()))
        assert not found.failed.any()
        assert found.updates["c0"].to_pylist() == numbers * count
    longer = message.replace(next(part for part in parts if part[:1] == b"\1"), varint_bytes(-1, 2**62), 1)
    for count in (1, 20):
        assert avro_decoder(columns).decode(pa.array([longer] * count, pa.binary())).failed.all()


@pytest.mark.parametrize("sized", [True, False])
def test_a_damaged_message_fails_alone(*, sized: bool) -> None:
    """The others have the updates that they have without it, wherever it is cut or changed."""
    random, columns = Random(7), columns_of("text", "int8")
    decoder, schema = avro_decoder(columns), schema_text(columns)
    numbers = [2**at for at in (6, 13, 48, 55, 62)]  # of one, two, seven, eight and nine bytes, and one more each
    parts = [
        [("y" * random.randrange(9), random.choice(numbers), random.choice(numbers), 1) for _ in range(count)]
        for count in (3, 40, 5, 1, 33, 2, 64, 4, 9, 8)
    ]
    messages = [message for part in parts for message in AvroEncoder(columns).updates(table_of(columns, part))]
    if not sized:
        records = [[{"data": {"f0": a, "f1": b}, "time": t, "diff": d} for a, b, t, d in part] for part in parts]
        messages = by_fastavro(schema, *records).to_pylist()
    assert len(messages) == len(parts)
    whole, victim = decoder.decode(pa.array(messages, pa.binary())).updates, 2
    start, stop = (sum(map(len, parts[:end])) for end in (victim, victim + 1))
    others = pa.concat_tables([whole.slice(0, start), whole.slice(stop)]).combine_chunks()
    message, failures = messages[victim], 0
    for at in range(0, len(message), 2):
        for damaged in (
            message[:at],
            message[:at] + bytes([message[at] ^ random.choice([1, 2, 128])]) + message[at + 1 :],
        ):
            alone = decoder.decode(pa.array([damaged], pa.binary()))
            given = [*messages[:victim], damaged, *messages[victim + 1 :]]
            found = decoder.decode(pa.array(given, pa.binary()))
            expected = [row == victim and bool(alone.failed[0]) for row in range(len(messages))]
            assert found.failed.tolist() == expected
            count = alone.updates.num_rows
            own = found.updates.slice(start, count)
            rest = pa.concat_tables([found.updates.slice(0, start), found.updates.slice(start + count)])
            assert own.equals(alone.updates)
            assert rest.combine_chunks().equals(others)
            failures += bool(alone.failed[0])
    assert failures > len(message) / 2


def test_progress_whose_upper_is_before_its_lower_is_invalid() -> None:
    found = avro_decoder([]).decode(
        by_fastavro(
            schema_text([]),
            *(
                ("com.materialize.cdc.progress", {"lower": [lower], "upper": [upper], "counts": []})
                for lower, upper in ((0, 3), (10, 3), (5, 5))
            ),
        )
    )
    assert found.failed.tolist() == [False, True, False]
    assert found.reason(1) == "progress has the upper [3], which is before its lower [10]"
    assert statements_of(found) == [(0, 3, {}), (5, 5, {})]


def test_progress_is_read_by_fastavro() -> None:
    encoder, schema = AvroEncoder([]), fastavro.parse_schema(json.loads(schema_text([])))
    for statement in (progress({3: 1, 9: 2**40}), progress({}, [7], []), progress({}, [], [])):
        message: Any = fastavro.schemaless_reader(io.BytesIO(encoder.progress(statement)), schema, None)
        pairs = [(each["time"], each["count"]) for each in message["counts"]]
        assert Progress.of(message["lower"], message["upper"], pairs).identity() == statement.identity()


def test_a_writer_with_other_fields_is_resolved() -> None:
    writer, reader = columns_of("int4", "text", nullable=False), columns_of("int8")
    decoder = AvroDecoder(*(CdcSchema.of(parse_schema(schema_text(each))) for each in (writer, reader)))
    found = decoder.decode(by_fastavro(schema_text(writer), [{"data": {"f0": 5, "f1": "x"}, "time": 1, "diff": 1}]))
    assert found.updates.to_pylist() == [{"c0": 5, "time": 1, "diff": 1}]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('"long"', "it is not a union of two types but Long"),
        ('["null", "long"]', "it has no branch that is an array of updates"),
        ('[{"type": "array", "items": "long"}, "long"]', "an update is not a record of data, time and diff"),
        (schema_text([]).replace('"lower"', '"low"'), "progress is not a record of lower, upper and counts"),
        (schema_text([]).replace('"diff", "type": "long"', '"diff", "type": "string"'), "time and diff of an update"),
    ],
)
def test_other_schemas_are_refused(schema: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"schema is not that of CDCv2 messages: {reason}"):
        CdcSchema.of(parse_schema(schema))


def test_names_that_avro_does_not_allow_are_refused() -> None:
    with pytest.raises(ValueError, match='column "a b" has a name that Avro does not allow'):
        schema_text([EncodedColumn("a b", parse_type("int4"))])
    with pytest.raises(ValueError, match='column "a" is specified more than once'):
        schema_text([EncodedColumn("a", parse_type("int4"))] * 2)


# -- JSON -------------------------------------------------------------------------------------------------------------


@given(tables())
@examples(150)
def test_updates_come_back_from_json(example: tuple[list[EncodedColumn], pa.Table]) -> None:
    columns, updates = example
    messages = list(JsonEncoder(columns).updates(updates))
    assert all(b"\n" not in message for message in messages)
    found = JsonDecoder(columns).decode(pa.array(messages, pa.binary()))
    assert not found.failed.any()
    assert found.updates.combine_chunks().equals(updates.combine_chunks())


def test_the_json_form() -> None:
    columns = columns_of("text", "float8", "bool", "numeric(5,2)", "jsonb")
    values = ['a"\n\x01\\', math.inf, True, Decimal("1.50"), '{"b": 1}']
    updates = table_of(columns, [(*values, 5, 1)])
    (message,) = JsonEncoder(columns).updates(updates)
    data = {"f0": 'a"\n\x01\\', "f1": "Infinity", "f2": True, "f3": "1.50", "f4": {"b": 1}}
    assert json.loads(message) == {"array": [{"data": data, "time": 5, "diff": 1}]}
    statement = JsonEncoder(columns).progress(progress({4: 2}, [0], []))
    assert json.loads(statement) == {
        "com.materialize.cdc.progress": {"lower": [0], "upper": [], "counts": [{"time": 4, "count": 2}]}
    }
    found = JsonDecoder(columns).decode(pa.array([message, statement], pa.binary()))
    assert found.updates.equals(updates)
    assert statements_of(found) == [(0, END, {4: 2})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "invalid JSON"),
        (b"\xff", "invalid JSON"),
        (b"[" * 100_000, "invalid JSON"),
        (b"[]", "message is not an object with the field"),
        (b'{"array": 1}', "message is not an object with the field"),
        (b'{"array": [{"time": 1, "diff": 1}]}', "update without data"),
        (b'{"array": [{"data": {"f0": 1}, "time": -1, "diff": 1}]}', "time of an update is not an integer between 0"),
        (b'{"array": [{"data": {"f0": 1}, "time": "1", "diff": 1}]}', "time of an update is not an integer"),
        (b'{"array": [{"data": {"f0": 1}, "time": 1.0, "diff": 1}]}', "time of an update is not an integer"),
        (b'{"array": [{"data": {"f0": "x"}, "time": 1, "diff": 1}]}', "invalid input syntax for type integer"),
        (b'{"array": [{"data": {"f0": [1]}, "time": 1, "diff": 1}]}', "array or object as the value of a column"),
        (b'{"array": [{"data": {"f1": 1e999999999}, "time": 1, "diff": 1}]}', "value overflows numeric format"),
        (b'{"com.materialize.cdc.progress": {"lower": [0], "upper": 3, "counts": []}}', "upper of progress is not an"),
        (b'{"com.materialize.cdc.progress": {"lower": [0], "upper": [3]}}', "counts of progress is not an array"),
        (b'{"com.materialize.cdc.progress": {"lower": [9], "upper": [3], "counts": []}}', "progress has the upper [3]"),
    ],
)
def test_a_line_that_is_no_message_fails_alone(line: bytes, reason: str) -> None:
    columns = columns_of("int4", "jsonb")
    good = b'{"array": [{"data": {"f0": 1}, "time": 1, "diff": 1}]}'
    found = JsonDecoder(columns).decode(pa.array([good, line, good], pa.binary()))
    assert found.failed.tolist() == [False, True, False]
    assert found.reason(1).startswith(reason)
    assert found.updates.num_rows == 2


JSON_TYPES = [
    *columns_of("int2", "int8", "float4", "float8", "bool", "text", "numeric(12,3)"),
    EncodedColumn("array", parse_type("text"), False),
]
ODD_VALUES = [
    *("1", "-0", "0", "0.0", "-0.0", "1.0", "1e2", "01", "32768", "9223372036854775808", "1e39", "1e-46", "1e-400"),
    *("0." + "0" * 50 + "1", "1e400", "NaN", "Infinity", "-Infinity", "null", "true", "false", "[]", "{}", "[1]"),
    *(
        '"1"',
        '"1.5"',
        '"t"',
        '"NaN"',
        '""',
        '"x"',
        '"é"',
        '"\\u00e9"',
        '"\\u0000"',
        '"\\\\u0000"',
        '"\\ud83d\\ude00"',
    ),
    *('"\\ud83d"', '"\\udc00"', '"\\n"', '"\\x"', '"a\nb"', '"a\tb"', '"{\\"array\\":[]}"', '": 1e-46"'),
]
PIECES = st.sampled_from(
    [
        *(
            '{"array":[',
            "]}",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\r",
            "\0",
            "\ufeff",
            "/**/",
            '"array":[]',
            "null",
        ),
        *(
            '{"array":[{"data":',
            '{"array":"x"},"time":5,"diff":1}]}',
            ',"x":1',
            '"data":{},',
            '"time":7,',
            '"diff":null',
        ),
        *(
            '"com.materialize.cdc.progress":null',
            '"lower":[0]',
            '"upper":[]',
            '{"time":1,"count":1}',
            '"count":-1',
            "1e3",
        ),
    ]
)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """A message, perhaps with odd values, and perhaps damaged."""
    if draw(st.integers(0, 3)) == 0:
        pairs = draw(
            st.lists(st.tuples(st.integers(-1, 9), st.sampled_from([0, 1, 2, -1, 2**63, 1.5, None])), max_size=3)
        )
        lower, upper = draw(st.lists(st.integers(-1, 3), max_size=2)), draw(st.lists(st.integers(3, 9), max_size=2))
        counts = [{"time": time, "count": count} for time, count in pairs]
        line = json.dumps({"com.materialize.cdc.progress": {"lower": lower, "upper": upper, "counts": counts}})
    else:
        updates = []
        for _ in range(draw(st.integers(0, 2))):
            chosen = draw(st.lists(st.sampled_from(JSON_TYPES), max_size=2, unique=True))
            values = [f'"{column.name}":{draw(st.sampled_from(ODD_VALUES))}' for column in chosen]
            data = ",".join([*values, *draw(st.sampled_from([[], ['"array":"y"'], ['"array":"y"'], ['"z":[1]']]))])
            updates.append(f'{{"data":{{{data}}},"time":{draw(st.integers(-1, 3))},"diff":1}}')
        line = f'{{"array":[{",".join(updates)}]}}'
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at, length = draw(st.integers(0, len(line))), draw(st.sampled_from([0, 0, 1, 5]))
        line = line[:at] + draw(PIECES | st.just("")) + line[at + length :]
    return line.encode()


def assert_decoded_as_one_by_one(lines: Sequence[bytes]) -> None:
    decoder = JsonDecoder(JSON_TYPES)
    messages = pa.array(lines, pa.binary())
    together, alone = decoder.decode(messages), _Found()
    decoder._one_by_one(messages, np.arange(len(lines)), alone)
    assert {row: together.reason(row) for row in np.flatnonzero(together.failed).tolist()} == alone.reasons
    rows = [repr(row) for _, table in alone.tables for row in table.to_pylist()]
    assert sorted(map(repr, together.updates.to_pylist())) == sorted(rows)
    statements = [own for _, found in alone.statements for own in found]
    assert sorted(s.identity() for s in together.statements) == sorted(s.identity() for s in statements)


@given(
    st.lists(
        json_lines() | st.just(b"\xff") | st.just(b'{"array":[{"data":{"array":"\xff"},"time":1,"diff":1}]}'),
        max_size=30,
    )
)
@examples(400)
def test_lines_are_decoded_together_as_one_by_one(lines: list[bytes]) -> None:
    assert_decoded_as_one_by_one(lines)


@pytest.mark.parametrize("column", [column.name for column in JSON_TYPES])
def test_values_are_decoded_together_as_one_by_one(column: str) -> None:
    for value in ODD_VALUES:
        data = f'"array":"y","{column}":{value}' if column != "array" else f'"array":{value}'
        assert_decoded_as_one_by_one([f'{{"array":[{{"data":{{{data}}},"time":1,"diff":1}}]}}'.encode()])


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"array":[{"data":{},"time":1,"diff":1}]}'],
        [b'{"array":[{"data":{"array":"x"},"time":1}]}'],
        [b'{"array":[{"data":{"array":"x"},"time":-1,"diff":1}]}'],
        [b'{"array":[{"data":{"array":"x"},"time":1,"diff":null}]}'],
        [b'{"array":[{"data":null,"time":1,"diff":1}]}', b'{"array":[null]}', b'{"array":null}'],
        [b'{"array":[]}{"array":[]}'],
        [b'{"array":[],"com.materialize.cdc.progress":null}', b'{"array":[],"x":[]}', b'{"array":[],"array":[]}'],
        [b'{"array":[{"data":', b'{"array":"x"},"time":1,"diff":1}]}{"array":[]}'],
        [b'{"array":[{"data":{"array":"x"},', b'"time":1,"diff":1}]}'],
        [b'{"com.materialize.cdc.progress":{"lower":[0],"upper":[3],"counts":[{"time":1}]}}'],
        [b'{"com.materialize.cdc.progress":{"lower":[0],"upper":null,"counts":[]}}'],
        [b'{"com.materialize.cdc.progress":{"lower":[0],"upper":[null],"counts":[]}}'],
    ],
)
def test_other_lines_are_decoded_together_as_one_by_one(lines: list[bytes]) -> None:
    assert_decoded_as_one_by_one(lines)


def test_many_lines_are_decoded_although_one_is_invalid() -> None:
    columns = columns_of("int4", "float8")
    good = [b'{"array":[{"data":{"f0":%d,"f1":0},"time":%d,"diff":1}]}' % (row, row) for row in range(100)]
    lines = [*good[:70], b'{"array":[{"data":{"f0":"x"},"time":1,"diff":1}]}', *good[70:]]
    found = JsonDecoder(columns).decode(pa.array(lines, pa.binary()))
    assert np.flatnonzero(found.failed).tolist() == [70]
    assert found.reason(70) == 'invalid input syntax for type integer: "x"'
    assert found.updates.to_pylist() == [{"c0": row, "c1": 0.0, "time": row, "diff": 1} for row in range(100)]


# -- bytes that are no messages ---------------------------------------------------------------------------------------

FUZZED = columns_of("text", "int4", "bool")


def messages_of(random: Random) -> list[bytes]:
    rows = [("y" * random.randrange(5), random.randrange(9), True, random.randrange(20), 1) for _ in range(40)]
    return [*AvroEncoder(FUZZED).updates(table_of(FUZZED, rows)), AvroEncoder(FUZZED).progress(progress({4: 2, 5: 1}))]


@given(st.lists(st.binary(max_size=30) | st.none(), max_size=12))
@examples(300)
def test_random_bytes_are_decoded_as_fastavro_decodes_them(data: list[bytes | None]) -> None:
    schema = fastavro.parse_schema(json.loads(schema_text(FUZZED)))
    found = avro_decoder(FUZZED).decode(pa.array(data, pa.binary()))
    for row in np.flatnonzero(found.failed).tolist():
        assert found.reason(row)
    for row in np.flatnonzero(~found.failed).tolist():
        message = data[row]
        assert message is not None
        buffer = io.BytesIO(message)
        fastavro.schemaless_reader(buffer, schema, None)
        assert buffer.read() == b""


@given(st.integers(0, 2**32))
@examples(200)
def test_damaged_messages_advance_no_frontier(seed: int) -> None:
    """Bytes are cut off, or added. (A changed byte can make another valid message.)"""
    random = Random(seed)
    damaged = []
    for message in messages_of(random) * 5:
        if random.random() < 0.7:
            damaged.append(message[: random.randrange(len(message))])
        else:
            damaged.append(message + random.randbytes(random.randint(1, 3)))
    found = avro_decoder(FUZZED).decode(pa.array(damaged, pa.binary()))
    assert found.failed.all()
    reader = Reader(schema_of(FUZZED))
    assert reader.receive(found.updates, found.statements) is None


@given(st.integers(0, 2**32))
@examples(200)
def test_changed_bytes_never_crash(seed: int) -> None:
    random = Random(seed)
    changed = []
    for message in messages_of(random) * 4:
        data = bytearray(message)
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        changed.append(bytes(data))
    found = avro_decoder(FUZZED).decode(pa.array(changed, pa.binary()))
    reader = Reader(schema_of(FUZZED))
    reader.receive(found.updates, found.statements)
    for row in np.flatnonzero(found.failed).tolist():
        assert found.reason(row)


@given(st.lists(st.binary(max_size=40) | st.text().map(str.encode), max_size=6))
@examples(100)
def test_random_lines_are_no_messages(lines: list[bytes]) -> None:
    assert JsonDecoder(FUZZED).decode(pa.array(lines, pa.binary())).failed.all()


@given(st.lists(st.integers(0, 3 * MESSAGE_BYTES // 2) | st.integers(0, 900), max_size=40), st.integers(0, 1_200))
def test_messages_are_bounded(lengths: list[int], small: int) -> None:
    lengths = [*lengths, *[7] * small]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    bounds = list(message_bounds(offsets))
    assert [number for start, stop in bounds for number in range(start, stop)] == list(range(len(lengths)))
    for start, stop in bounds:
        size = sum(lengths[start:stop])
        assert stop == start + 1 or (stop - start <= MESSAGE_UPDATES and size <= MESSAGE_BYTES)
        if stop < len(lengths):  # the next update would not fit
            assert stop - start == MESSAGE_UPDATES or size + lengths[stop] > MESSAGE_BYTES
