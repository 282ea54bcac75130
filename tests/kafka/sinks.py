"""Sinks into Kafka on a coordinator without Spark, and readers of their topics."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import fastavro

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.connections import Connection
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.source_definition import Encoding, Envelope, Format
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.egress.sinks import Sinks
from tests.kafka.registry import Registry
from tests.server.egress.child import running
from tests.server.egress.postgres.child import SCHEMA

TABLE = Table(ObjectId("u10"), SCHEMA, "t", (Column("n", "int8"), Column("v", "text")), retain_ms=0)
KAFKA, REGISTRY, SINK = ObjectId("u11"), ObjectId("u12"), ObjectId("u13")
PROGRESS = "_tidewire-progress"


def sink_of(
    topic: str,
    format: str = "json",
    envelope: Envelope = Envelope.UPSERT,
    key: tuple[str, ...] = ("n",),
    **options: str,
) -> Sink:
    """A sink of `TABLE`, with connections `KAFKA` and `REGISTRY`."""
    encoding = Encoding("json") if format == "json" else Encoding("avro", REGISTRY)
    given = {"topic": topic, **{name.replace("_", " "): value for name, value in options.items()}}
    key = () if envelope is Envelope.MATERIALIZE else key
    return Sink(
        SINK,
        SCHEMA,
        "s",
        TABLE.id,
        "kafka",
        given,
        Format(encoding, envelope=envelope),
        connection=KAFKA,
        key=key,
        identity=f"id-{topic}",
    )


async def define(coordinator: Coordinator, address: str, registry: Registry | None, *sinks: Sink) -> None:
    """Creates the table, the connections and the sinks that do not exist."""
    before = coordinator.state
    url = registry.url if registry is not None else "http://127.0.0.1:1"
    items = [
        TABLE,
        Connection(KAFKA, SCHEMA, "k", "kafka", {"broker": address}, {}),
        Connection(REGISTRY, SCHEMA, "r", "confluent schema registry", {"url": url}, {}),
        *sinks,
    ]
    after = replace(before, version=before.version + 1)
    for item in items:
        if item.id not in before.items:
            after = after.with_item(item)
    if after.items != before.items:
        await coordinator.commit(Request(catalog=(before, after)))


class Brokers(Protocol):
    @property
    def address(self) -> str: ...


@asynccontextmanager
async def started(
    directory: Path, kafka: Brokers, registry: Registry, *sinks: Sink
) -> AsyncIterator[tuple[Coordinator, Sinks]]:
    """A server without sessions, with these sinks."""
    coordinator, tasks = running(directory)
    await coordinator.start()
    await define(coordinator, kafka.address, registry, *sinks)
    tasks.start()
    try:
        yield coordinator, tasks
    finally:
        await tasks.close()
        await coordinator.close()


async def until_written(coordinator: Coordinator, sinks: Sinks, id: ObjectId = SINK) -> int:
    """Waits until a sink has written all committed changes. Returns its frontier."""
    time = coordinator.latest_time()
    while (frontier := sinks.running[id].frontier or 0) <= time:
        await coordinator.frontiers.moved.wait()
    return frontier


@dataclass(frozen=True, slots=True)
class Read:
    """A message of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def read_topic(address: str, topic: str, isolation: str = "read_committed") -> list[Read]:
    """The current messages of a topic, ordered by partition and offset."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "test",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
        "log_level": 2,
    }
    consumer: Any = confluent_kafka.Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in partitions]
        consumer.assign(places)
        found, ended = [], set()
        while ended != set(partitions):
            for message in [consumer.poll(10), *consumer.consume(10_000, 0)]:
                if message.error() is None:
                    place = message.partition(), message.offset()
                    found.append(Read(*place, message.key(), message.value(), tuple(message.headers() or ())))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise AssertionError(message.error())
        return sorted(found, key=lambda read: (read.partition, read.offset))
    finally:
        consumer.close()


def decoded(data: bytes | None, schemas: Mapping[int, str] | None) -> Any:
    """Decodes a key or a value with fastavro, or with json if `schemas` is None."""
    if data is None:
        return None
    if schemas is None:
        return json.loads(data)
    assert data[0] == 0
    schema = fastavro.parse_schema(json.loads(schemas[int.from_bytes(data[1:5], "big")]))
    stream = io.BytesIO(data[5:])
    value = fastavro.schemaless_reader(stream, schema, None)
    assert not stream.read()
    return value


def message_values(messages: Sequence[Read], schemas: Mapping[int, str] | None = None) -> list[tuple[Any, Any]]:
    """The decoded keys and values of messages."""
    return [(decoded(m.key, schemas), decoded(m.value, schemas)) for m in messages]


def upserted(messages: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """The last value of each key, without deleted keys."""
    found: dict[str, Any] = {}
    for key, value in messages:
        found[json.dumps(key)] = value
    return {key: value for key, value in found.items() if value is not None}


def replayed(messages: Sequence[tuple[Any, Any]]) -> dict[tuple[Any, ...], int]:
    """The multiplicities of rows after messages with `before` and `after`. Fails if a `before` row does not exist."""
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for _, value in messages:
        if value["before"] is not None:
            row = tuple(value["before"].values())
            counts[row] -= 1
            assert counts[row] >= 0, value
        if value["after"] is not None:
            counts[tuple(value["after"].values())] += 1
    return {row: count for row, count in counts.items() if count}
