"""Damaged messages and damaged schemas to the Avro decoder."""

from __future__ import annotations

import io
import json
from collections import Counter
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from protocol.avro.decoder import Decoder, Wanted
from protocol.avro.schema import SchemaError, parse_schema
from tests.fuzz.limits import limited
from tests.fuzz.mutations import damaged, damaged_avro, damaged_json, portion, seeded

pytestmark = pytest.mark.fuzz

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "db.public.orders",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"], "default": None},
        {"name": "flag", "type": "boolean", "default": True},
        {"name": "ratio", "type": ["double", "null"]},
        {"name": "single", "type": "float"},
        {"name": "name", "type": {"type": "string", "connect.name": "io.debezium.data.Json"}},
        {"name": "token", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "day", "type": {"type": "int", "connect.name": f"{_TIME}Date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "zoned", "type": {"type": "string", "connect.name": f"{_TIME}ZonedTimestamp"}},
        {
            "name": "price",
            "type": {
                "type": "bytes",
                "connect.name": f"{_CONNECT}Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
        },
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "previous", "type": ["null", "State", "long"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "limits", "type": {"type": "map", "values": "long"}},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "street", "type": "string", "default": ""},
                        {"name": "digests", "type": {"type": "array", "items": "Digest"}},
                        {"name": "nothing", "type": "null"},
                    ],
                },
            ],
        },
        {"name": "others", "type": {"type": "array", "items": {"type": "array", "items": "Place"}}},
        {
            "name": "any",
            "type": {
                "type": "record",
                "name": "VariableScaleDecimal",
                "namespace": "io.debezium.data",
                "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
                "connect.name": "io.debezium.data.VariableScaleDecimal",
            },
        },
    ],
}
_PARTS: list[Any] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    *(
        "Place",
        "Digest",
        "db.public.orders.State",
        "Value",
        ["null", "Place"],
        {"type": "array", "items": "null"},
        {"type": "map", "values": "Place"},
    ),
    *({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": n} for n in (-1, 3, 10, 500)),
    *({"type": "fixed", "name": "f", "size": size} for size in (0, 1, 2**20, 2**40, 2**70)),
    {"type": "record", "name": "Empty", "fields": []},
    {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}},
    {"type": "enum", "name": "e", "symbols": []},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "connect.name": f"{_TIME}NanoTimestamp"},
    {"type": "int", "logicalType": "time-millis"},
]
BATCH = 50


def row(random: Random) -> dict[str, Any]:
    place = {"street": "é" * random.randrange(5), "digests": [b"abcd"] * random.randrange(3), "nothing": None}
    return {
        "id": random.choice((0, 7, -(2**63), 2**63 - 1)),
        "small": random.choice((None, -1, 2**31 - 1)),
        "flag": random.random() < 0.5,
        "ratio": random.choice((None, 0.5, float("inf"), float("nan"))),
        "single": 1.5,
        "name": json.dumps({"a": [1, None, "x" * random.randrange(20)]}),
        "token": random.choice((None, "f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
        "day": random.randrange(30_000),
        "at": random.choice((None, 1_700_000_000_000_000)),
        "zoned": "2024-01-02T03:04:05Z",
        "price": random.randrange(10**6).to_bytes(4, "big"),
        "digest": b"\0\1\2\3",
        "state": random.choice(("NEW", "PAID")),
        "previous": random.choice((None, "PAID", 5)),
        "tags": [random.choice((None, "a", "long" * 9)) for _ in range(random.randrange(4))],
        "limits": {f"k{n}": n for n in range(random.randrange(4))},
        "place": random.choice((None, place)),
        "others": [[place] * random.randrange(3)] * random.randrange(3),
        "any": {"scale": random.choice((-2, 0, 3, 30)), "value": b"\x01\x02"},
    }


def encoded(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def messages(random: Random, count: int) -> list[bytes]:
    schema = fastavro.parse_schema(json.loads(json.dumps(ROW)))
    return [encoded(schema, row(random)) for _ in range(count)]


def values(columns: Any, kept: list[int]) -> list[str]:
    """Those of some rows, as text: NaN is not equal to itself."""
    return [repr(column.take(pa.array(kept, pa.int64())).to_pylist()) for column in columns.values()]


def test_damaged_messages() -> None:
    """They fail with a reason or have valid values. The other messages of their batch are decoded as without them."""
    random = seeded("avro")
    type = parse_schema(json.dumps(ROW))
    decoder = Decoder(type, Wanted.all_of(type))
    good = messages(random, 300)
    failures: Counter[str] = Counter()
    with limited(seconds_max=2) as limits:
        for _ in range(portion(60_000) // BATCH + 1):
            batch = random.choices(good, k=BATCH)
            intact = [at for at in range(BATCH) if random.random() < 0.3]
            alone = decoder.decode(pa.array([batch[at] for at in intact], pa.binary()))
            given = [message if at in intact else damaged_avro(message, random) for at, message in enumerate(batch)]
            with limits.of(given):
                found = decoder.decode(pa.array(given, pa.binary()))
                assert not found.failed[intact].any()
                assert values(found.columns, intact) == values(alone.columns, [*range(len(intact))])
                for column in found.columns.values():
                    column.take(pa.array(np.flatnonzero(~found.failed))).validate(full=True)
                for at in np.flatnonzero(found.failed).tolist():
                    failures[decoder.reason(given[at], found.wrong_fields.get(at)).rpartition(": ")[2][:20]] += 1
    print(sum(failures.values()), failures.most_common(8))
    if limits.inputs >= 100:
        assert 0.2 < sum(failures.values()) / (limits.inputs * BATCH * 0.7) < 0.95


def test_damaged_schemas() -> None:
    """Only SchemaError is raised. What is accepted decodes messages, of itself and of the undamaged schema."""
    random = seeded("schemas")
    type = parse_schema(json.dumps(ROW))
    reader = Wanted.all_of(type)
    good = messages(random, 100)
    seen: Counter[str] = Counter()
    with limited(seconds_max=2) as limits:
        for _ in range(portion(10_000)):
            value = ROW
            for _ in range(random.choice((1, 1, 2, 4))):
                value = damaged_json(value, random, _PARTS)
            text = json.dumps(value)
            if random.random() < 0.05:
                text = damaged(text.encode(), random).decode(errors="replace")
            given = [damaged_avro(message, random) for message in random.choices(good, k=2)] + random.choices(good, k=2)
            with limits.of((text, given)):
                try:
                    writer = parse_schema(text)
                except SchemaError:
                    seen["refused"] += 1
                    continue
                for name in ("reader", "own"):
                    try:
                        decoder = Decoder(writer, reader if name == "reader" else Wanted.all_of(writer))
                    except SchemaError:
                        seen[f"{name} refused"] += 1
                        continue
                    found = decoder.decode(pa.array(given, pa.binary()))
                    seen[name] += 1
                    for at in np.flatnonzero(found.failed).tolist():
                        assert decoder.reason(given[at], found.wrong_fields.get(at))
    print(seen)
    if limits.inputs >= 500:
        assert all(seen[each] > 0.05 * limits.inputs for each in ("refused", "reader refused", "reader", "own"))
