"""Kafka's messages to committed changes, compared with the bare decoding of the same messages by fastavro.

Processor time of this process, in which the source runs without Kafka, and of Spark's JVM, for all that happens to a
message after it was fetched: decoding, the envelope, the join with the old rows, the log on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro

from catalog.source_definition import Encoding, Envelope, Format
from server.ingest.kafka.layouts.layout import Schemas
from server.spark.engine import SparkEngine
from tests.bench.engines import with_engine
from tests.bench.servers import Line, Servers
from tests.kafka.capture import CUSTOMERS, captured
from tests.kafka.outputs import Message, OutputRun

BATCH = 20_000  # messages of a step
CHANGES = 60_000  # messages of DEBEZIUM
INTERVAL_S = 1.0  # the server's default
IDLE_S = 2.5  # longer than the pause between two compactions
TARGET = "at least 0.5 x fastavro"
BARE = Encoding("avro", schema="", options={"confluent wire format": "false"})
_FRAMED = Encoding("avro", schema="")
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kafka-keys", type=int, default=200_000, help="number of keys of the UPSERT topic")


def run(servers: Servers, options: argparse.Namespace) -> list[Line]:
    return with_engine(lambda engine: _measured(engine, options.kafka_keys))


async def _measured(engine: SparkEngine, keys: int) -> list[Line]:
    inserts = [upsert(id, 0) for id in range(keys)]
    updates = [upsert(id * 7_919 % keys, 1) for id in range(keys // 2)]
    flat = _decoding(KEY, VALUE, 0)
    format = Format(BARE, BARE, envelope=Envelope.UPSERT)
    schemas = Schemas(json.dumps(KEY), json.dumps(VALUE))
    lines = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        async with OutputRun(Path(directory), format, schemas, engine, interval_s=INTERVAL_S) as output:
            for name, messages in (("new keys", inserts), (f"updates of {keys:,} keys", updates)):
                found = await _committed(output, messages, engine)
                lines.append(_line(f"Avro UPSERT, 200-byte rows, {name}", found, _rate(flat, messages)))
            single = [await _latency(output, upsert(number, 2)) for number in range(30)]
            lines.append(Line("UPSERT, a step of one message", f"{statistics.median(single):.0f} ms", "", "", ""))
    texts, _ = captured()
    schemas = Schemas(texts[1], texts[2])
    changes = _changes(json.loads(texts[1]), json.loads(texts[2]), CHANGES)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        format = Format(_FRAMED, _FRAMED, envelope=Envelope.DEBEZIUM)
        async with OutputRun(Path(directory), format, schemas, engine, interval_s=INTERVAL_S) as output:
            found = await _committed(output, changes, engine)
            debezium = _decoding(json.loads(texts[1]), json.loads(texts[2]), 5)
            lines.append(_line("Avro DEBEZIUM, inserts and updates", found, _rate(debezium, changes)))
    return lines


def _line(name: str, ours: float, theirs: float) -> Line:
    return Line(name, f"{ours:,.0f}/s", f"{theirs:,.0f}/s", f"{ours / theirs:.2f} x", TARGET)


async def _committed(output: OutputRun, messages: Sequence[Message], engine: SparkEngine) -> float:
    """Messages per second of processor time, until they are committed and what they have written is merged."""
    batches = [output.topic.messages(messages[start : start + BATCH]) for start in range(0, len(messages), BATCH)]
    await _until_idle(engine)
    begun = _processor_s(engine)
    for batch in batches:
        await output.commit(batch)
    await _until_idle(engine)  # merges of the log and of the arrangement follow the commits
    return len(messages) / (_processor_s(engine) - begun)


def _changes(key: Any, value: Any, count: int) -> list[Message]:
    """An insert and an update of each of `count // 2` rows, in a connector's schemas."""
    _, messages = captured()
    update = next(m for m in messages if m.topic == CUSTOMERS and m.offset == 18)
    assert update.value is not None
    parsed = fastavro.parse_schema(key), fastavro.parse_schema(value)
    template = fastavro.schemaless_reader(io.BytesIO(update.value[5:]), parsed[1], None)
    found = []
    for number in range(count):
        row = {**template["after"], "id": number // 2}
        source = {**template["source"], "lsn": number, "sequence": f'["{number}","{number}"]'}
        before = None if number % 2 == 0 else {**row, "name": "foo"}
        row["name"] = "foo" if before is None else "bar"
        change = {**template, "before": before, "after": row, "source": source, "op": "c" if before is None else "u"}
        parts = []
        for id, schema, part in ((1, parsed[0], {"id": row["id"]}), (2, parsed[1], change)):
            buffer = io.BytesIO(id.to_bytes(5, "big"))
            buffer.seek(5)
            fastavro.schemaless_writer(buffer, schema, part)
            parts.append(buffer.getvalue())
        found.append(Message(*parts))
    return found


async def _until_idle(engine: SparkEngine) -> None:
    while True:
        begun = _processor_s(engine)
        await asyncio.sleep(IDLE_S)
        if _processor_s(engine) - begun < IDLE_S / 10:
            return


async def _latency(output: OutputRun, message: Message) -> float:
    """Milliseconds until one message is committed."""
    begun = time.perf_counter()
    await output.apply([message])
    await asyncio.sleep(0)
    return (time.perf_counter() - begun) * 1_000


def _processor_s(engine: SparkEngine) -> float:
    fields = Path(f"/proc/{engine.jvm_pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rate(decode: Callable[[Message], None], messages: Sequence[Message]) -> float:
    """Messages per second of processor time that fastavro decodes."""
    begun = time.process_time()
    for message in messages:
        decode(message)
    return len(messages) / (time.process_time() - begun)


def _decoding(key: Any, value: Any, skip: int) -> Callable[[Message], None]:
    parsed = fastavro.parse_schema(key), fastavro.parse_schema(value)

    def decode(message: Message) -> None:
        for data, schema in zip((message.key, message.value), parsed, strict=True):
            assert data is not None
            fastavro.schemaless_reader(io.BytesIO(data[skip:]), schema, None)

    return decode


_WRITERS = fastavro.parse_schema(KEY), fastavro.parse_schema(VALUE)


def upsert(id: int, version: int) -> Message:
    value = {
        "name": f"customer number {id:010}",
        "amount": None,
        "at": 1_700_000_000_000_000 + id,
        "quantity": version,
        "price": id / 8,
        "note": "x" * 140,
    }
    parts = []
    for schema, part in zip(_WRITERS, ({"id": id}, value), strict=True):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, part)
        parts.append(buffer.getvalue())
    return Message(*parts)
