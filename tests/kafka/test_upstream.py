"""Topics of librdkafka's mock brokers are read into collections exactly once."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import confluent_kafka
import fastavro
import numpy as np
import pyarrow as pa
import pytest

from catalog.ids import ObjectId, Timestamp
from catalog.objects.secrets import Secret
from catalog.objects.tables import Table
from catalog.source_definition import Encoding, Envelope, Format, ForTables, Include
from protocol.pgwire.errors import PgError
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.decoder_pool import DecoderPool
from server.ingest.ingestion import Ingestion, Status
from server.ingest.kafka import consumer
from server.ingest.kafka.consumer import TopicConsumer
from server.ingest.kafka.kind import KafkaKind
from server.ingest.kafka.layouts.metadata import metadata_column
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.upstream import KafkaUpstream
from server.ingest.source_definition import Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import UpstreamError
from server.runtime.metrics import Metrics
from tests.kafka.capture import CUSTOMERS, ORDERS, TRANSACTIONS, Captured, captured
from tests.kafka.debezium import Event, envelope_schema
from tests.kafka.mock_cluster import Api, MockCluster
from tests.kafka.outputs import JoinEngine
from tests.kafka.records import Record
from tests.kafka.registry import Registry

pytestmark = pytest.mark.slow

TEXT = Encoding("text")
REGISTRY = ObjectId("u99")
AVRO = Encoding("avro", REGISTRY)


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic("refused")
        yield cluster


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with Registry().serving() as serving:
        yield serving


def definition(
    kafka: MockCluster, topic: str, format: Format, registry: Registry | None = None, **options: str
) -> SourceDefinition:
    return SourceDefinition(
        "kafka",
        {"broker": kafka.address},
        {"topic": topic, **{name.replace("_", " "): value for name, value in options.items()}},
        format,
        registries={} if registry is None else {REGISTRY: {"url": registry.url}},
        identity="test",
    )


class Source:
    """A running ingestion of a Kafka source with one collection per output."""

    def __init__(
        self,
        coordinator: Coordinator,
        definition: SourceDefinition,
        outputs: Sequence[Output],
        metadata_s: float = 0.05,
        workers: int = 0,
    ) -> None:
        self.coordinator = coordinator
        self.targets = [Target(ObjectId(f"u{10 + i}"), output) for i, output in enumerate(outputs)]
        self.decoders = DecoderPool(workers)
        self.context = SourceContext(self.targets[0].id, coordinator, JoinEngine(), decoders=self.decoders)
        self.upstream = KafkaUpstream(definition, tuple(self.targets), self.context, metadata_s=metadata_s)
        self.ingestion = Ingestion(self.targets[0].id, self.upstream, coordinator, retry_s=0.001)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.coordinator.frontiers.moved.wait()

    async def rows(self, target: int = 0) -> list[tuple[Any, ...]]:
        id = self.targets[target].id
        found = await self.coordinator.reads.decoded_rows(id, self.coordinator.latest_time())
        return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))

    async def until_received(self, count: int) -> None:
        """Waits until this number of messages was read since the start."""
        while self.context.statistics.messages_received < count:
            assert self.ingestion.status is not Status.FAILED, self.ingestion.error
            await self.coordinator.frontiers.moved.wait()

    async def until_rows(self, count: int) -> list[tuple[Any, ...]]:
        """Waits until the collection has this number of rows, and returns them."""
        while len(rows := await self.rows()) != count:
            assert self.ingestion.status is not Status.FAILED, self.ingestion.error
            await self.coordinator.frontiers.moved.wait()
        return rows


@asynccontextmanager
async def running(
    directory: Path, definition: SourceDefinition, metadata_s: float = 0.05, workers: int = 0
) -> AsyncIterator[Source]:
    """`workers`: the number of processes that decode messages; 0: they are decoded in threads."""
    outputs = await KafkaKind().outputs(definition)
    coordinator = Coordinator(directory, engine=JoinEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})
    await coordinator.start()
    source = Source(coordinator, definition, outputs, metadata_s, workers)
    for target in source.targets:
        before = coordinator.state
        if target.id not in before.items:
            table = Table(target.id, ObjectId("u2"), target.output.name, target.output.columns, retain_ms=0)
            after = replace(before.with_item(table), version=before.version + 1)
            await coordinator.commit(Request(catalog=(before, after)))
    task = asyncio.create_task(source.ingestion.run())
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await source.decoders.close()
        await coordinator.close()


def numbered(start: int, end: int, partitions: int = 1) -> list[Record]:
    return [Record(b"k%d" % n, b"%d" % n, n % partitions) for n in range(start, end)]


def texts(start: int, end: int) -> list[tuple[Any, ...]]:
    return sorted((str(n),) for n in range(start, end))


async def test_a_poll_takes_its_messages_in_several_calls(
    kafka: MockCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "CONSUMED", 7)
    kafka.create_topic("several", 3)
    kafka.produce("several", numbered(0, 1_000, 3))
    async with running(tmp_path, definition(kafka, "several", Format(TEXT))) as run:
        assert await run.until_rows(1_000) == texts(0, 1_000)
        assert run.context.statistics.offset_known == 1_000


async def test_each_message_is_read_once_over_restarts(kafka: MockCluster, tmp_path: Path) -> None:
    kafka.create_topic("once", 3)
    source = definition(kafka, "once", Format(TEXT))
    for start in (0, 200, 400):
        kafka.produce("once", numbered(start, start + 200, 3))
        async with running(tmp_path, source) as run:
            assert await run.until_rows(start + 200) == texts(0, start + 200)
            assert run.context.statistics.messages_received == 200
            statistics, end = run.context.statistics, start + 200
            while statistics.offset_committed != end:
                await run.coordinator.frontiers.moved.wait()


async def test_messages_that_arrive_later_and_new_partitions_are_read(kafka: MockCluster, tmp_path: Path) -> None:
    kafka.create_topic("growing", 1)
    async with running(tmp_path, definition(kafka, "growing", Format(TEXT))) as run:
        kafka.produce("growing", numbered(0, 10))
        await run.until_rows(10)
        kafka.produce("growing", numbered(10, 20))
        assert await run.until_rows(20) == texts(0, 20)
    kafka.create_topic("partitioned", 1)
    async with running(tmp_path / "p", definition(kafka, "partitioned", Format(TEXT))) as run:
        await run.until(lambda: run.ingestion.status is Status.RUNNING)
        kafka.delete_topic("partitioned")  # the mock cannot add partitions to a topic
        kafka.create_topic("partitioned", 3)
        kafka.produce("partitioned", numbered(0, 30, 3))
        assert await run.until_rows(30) == texts(0, 30)


async def test_messages_are_read_while_new_partitions_are_searched(
    kafka: MockCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("searched", 2)
    search, may_end = TopicConsumer.partitions, asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def slow(self: TopicConsumer) -> int | None:
        await begun.put(None)
        await may_end.wait()
        return await search(self)

    async with running(tmp_path, definition(kafka, "searched", Format(TEXT))) as run:
        await run.until(lambda: run.ingestion.status is Status.RUNNING)
        monkeypatch.setattr(TopicConsumer, "partitions", slow)
        await begun.get()
        for start in range(0, 40, 10):
            kafka.produce("searched", numbered(start, start + 10, 2))
            await run.until_rows(start + 10)
        assert begun.empty(), (run.ingestion.status, run.ingestion.error)
        may_end.set()
        await begun.get()  # the next search
        assert run.ingestion.status is Status.RUNNING


async def test_the_offsets_of_all_partitions_are_asked_together(kafka: MockCluster) -> None:
    kafka.create_topic("many", 4)
    kafka.produce("many", numbered(0, 9, 3))
    kafka.delete_records("many", 2, 1)
    consumer = TopicConsumer({"broker": kafka.address}, "many", "test")
    try:
        assert await consumer.watermarks(range(4)) == {0: (0, 3), 1: (2, 3), 2: (0, 3), 3: (0, 0)}
        assert await consumer.watermarks([]) == {}
        with pytest.raises(UpstreamError, match='could not read topic "many"'):
            await consumer.watermarks([7])
    finally:
        await consumer.close()


async def test_brokers_without_a_controller_get_no_administrative_requests(
    kafka: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would wait for a controller until the request's timeout."""
    monkeypatch.setattr(TopicConsumer, "_admin", None)
    kafka.create_topic("uncontrolled")
    consumer = TopicConsumer({"broker": kafka.address}, "uncontrolled", "test")
    try:
        assert not await consumer.is_compacted()
        assert await consumer.topic_id() is None
    finally:
        await consumer.close()


async def test_the_columns_of_metadata(kafka: MockCluster, tmp_path: Path) -> None:
    kafka.create_topic("metadata", 2)
    include = (
        Include("key", "k"),
        Include("partition"),
        Include("offset", "o"),
        Include("timestamp"),
        Include("headers"),
        Include("header", "h", "a"),
        Include("header", "b", "a", is_bytes=True),
    )
    record = Record(b"key", b"value", 1, [("a", b"1"), ("b", None)], 1_700_000_000_123)
    kafka.produce("metadata", [record])
    async with running(tmp_path, definition(kafka, "metadata", Format(TEXT, TEXT, include))) as run:
        ((key, text, partition, offset, timestamp, headers, header, data),) = await run.until_rows(1)
        assert (key, text, partition, offset, header, data) == ("key", "value", 1, 0, "1", b"1")
        assert timestamp.isoformat() == "2023-11-14T22:13:20.123000"
        assert json.loads(headers) == [{"key": "a", "value": "\\x31"}, {"key": "b", "value": None}]
        columns = [(column.name, column.type) for column in run.targets[0].output.columns]
        assert columns == [
            ("k", "text"),
            ("text", "text"),
            ("partition", "int4"),
            ("o", "int8"),
            ("timestamp", "timestamp"),
            ("headers", "jsonb"),
            ("h", "text"),
            ("b", "bytea"),
        ]


def test_times_of_messages_that_no_timestamp_can_have_are_infinite() -> None:
    """Brokers with a high message.timestamp.after.max.ms accept any number of milliseconds."""
    times = np.array([0, -1, 2**63 - 1, 2**53, -(2**63), -(2**50), 9_223_372_036_854_775, 9_223_372_036_854_774])
    found = metadata_column(Messages(times, times, times, pa.array([]), pa.array([])), Include("timestamp"))
    limits = np.iinfo(np.int64)
    assert found.view(pa.int64()).to_pylist() == [
        0,
        -1_000,
        limits.max,
        2**53 * 1_000,
        limits.min,
        limits.min,
        limits.max,
        9_223_372_036_854_774_000,
    ]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"start_offset": "(4, 2)"}, 4),
        ({"start_offset": "-1"}, 6),
        ({"start_offset": f"100,{2**63 - 1}"}, 0),
        ({}, 10),
    ],
)
async def test_start_offsets(kafka: MockCluster, tmp_path: Path, option: dict[str, str], expected: int) -> None:
    topic = f"start{expected}"
    kafka.create_topic(topic, 2)
    kafka.produce(topic, numbered(0, 10, 2))
    async with running(tmp_path, definition(kafka, topic, Format(TEXT), **option)) as run:
        await run.until(lambda: run.ingestion.status is Status.RUNNING)
        await run.until_rows(expected)
        kafka.produce(topic, numbered(10, 12, 2))
        await run.until_rows(expected + 2)


async def test_messages_after_create_source_are_read_although_the_start_is_relative(kafka: MockCluster) -> None:
    """The first start may be later, because the broker is down then or the server is busy."""
    kafka.create_topic("relative", 2)
    kafka.produce("relative", numbered(0, 10, 2))
    before = int(time() * 1_000)
    source = definition(kafka, "relative", Format(TEXT), start_timestamp="-10")
    fixed = await KafkaKind().fixed_options(source)
    assert before - 10 <= int(fixed["start timestamp"]) <= time() * 1_000
    for given, expected in (("(-2, 1)", "(3, 1)"), ("-2", "(3)"), ("1,-100", "(1, 0)"), ("(4, 2)", "(4, 2)")):
        source = definition(kafka, "relative", Format(TEXT), start_offset=given)
        assert (await KafkaKind().fixed_options(source))["start offset"] == expected
    assert "start offset" not in await KafkaKind().fixed_options(definition(kafka, "relative", Format(TEXT)))


async def test_a_topic_that_lost_unread_messages_fails(kafka: MockCluster, tmp_path: Path) -> None:
    kafka.create_topic("lost")
    kafka.produce("lost", numbered(0, 5))
    source = definition(kafka, "lost", Format(TEXT))
    async with running(tmp_path, source) as run:
        await run.until_rows(5)
    kafka.produce("lost", numbered(5, 10))
    kafka.delete_records("lost", 8)
    async with running(tmp_path, source) as run:
        await run.until(lambda: run.ingestion.status is Status.FAILED)
        assert isinstance(run.ingestion.error, PgError)
        assert 'topic "lost" no longer has the messages of partition 0' in run.ingestion.error.message
        assert run.ingestion.error.detail == "The next offset is 5, and the topic has offsets 8 to 10."
        assert len(await run.rows()) == 5


async def test_a_topic_that_was_deleted_or_created_again_fails(kafka: MockCluster, tmp_path: Path) -> None:
    kafka.create_topic("deleted")
    kafka.produce("deleted", numbered(0, 5))
    source = definition(kafka, "deleted", Format(TEXT))
    async with running(tmp_path, source) as run:
        await run.until_rows(5)
        kafka.delete_topic("deleted")
        await run.until(lambda: run.ingestion.status is Status.FAILED)
        assert str(run.ingestion.error) == 'topic "deleted" does not exist'
    kafka.create_topic("deleted")
    async with running(tmp_path, source) as run:
        await run.until(lambda: run.ingestion.status is Status.FAILED)
        assert "no longer has the messages" in str(run.ingestion.error)


async def test_a_broker_that_is_down_stalls_the_source(tmp_path: Path) -> None:
    with MockCluster() as own:
        own.create_topic("down")
        own.produce("down", numbered(0, 5))
        async with running(tmp_path, definition(own, "down", Format(TEXT))) as run:
            await run.until_rows(5)
            own.stop_broker()
            await run.until(lambda: run.ingestion.status is Status.STALLED)
            assert own.address in str(run.ingestion.error)
            own.start_broker()
            own.produce("down", numbered(5, 10))
            assert await run.until_rows(10) == texts(0, 10)
            own.fail(Api.FETCH, [confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION] * 3)
            own.produce("down", numbered(10, 15))
            assert await run.until_rows(15) == texts(0, 15)


# -- schemas --------------------------------------------------------------------------------------------------------

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
VALUE = {"type": "record", "name": "Value", "fields": [{"name": "v", "type": ["null", "string"], "default": None}]}


def framed(id: int, data: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + data


def avro(number: int) -> bytes:
    return bytes([2 * number])


async def test_schemas_evolve_and_a_registry_may_be_down(
    kafka: MockCluster, registry: Registry, tmp_path: Path
) -> None:
    key, value = registry.register("evolving-key", KEY), registry.register("evolving-value", VALUE)
    kafka.create_topic("evolving")
    kafka.produce("evolving", [Record(framed(key, avro(1)), framed(value, b"\2\2a"))])
    format = Format(AVRO, envelope=Envelope.UPSERT)
    source = definition(kafka, "evolving", format, registry)
    async with running(tmp_path, source) as run:
        assert run.targets[0].output.key == ("id",)
        assert await run.until_rows(1) == [(1, "a")]
        fields = [{"name": "w", "type": "int"}, {"name": "v", "type": "string"}]
        newer = registry.register("evolving-value", {**VALUE, "fields": fields})
        registry.failure = 503
        kafka.produce("evolving", [Record(framed(key, avro(2)), framed(newer, b"\x0e\2b"))])
        await run.until(lambda: run.ingestion.status is Status.STALLED)
        assert str(run.ingestion.error) == f'schema registry "{registry.url}" answered with status 503'
        registry.failure = None
        assert await run.until_rows(2) == [(1, "a"), (2, "b")]
    coordinator_columns = run.targets[0].output.columns
    async with running(tmp_path / "2", replace(source, options={"topic": "evolving"})) as run:
        assert run.targets[0].output.columns != coordinator_columns  # a new source has the latest schema


async def test_the_columns_stay_those_of_the_creation(kafka: MockCluster, registry: Registry, tmp_path: Path) -> None:
    key, value = registry.register("kept-key", KEY), registry.register("kept-value", VALUE)
    kafka.create_topic("kept")
    kafka.produce("kept", [Record(framed(key, avro(1)), framed(value, b"\2\2a"))])
    source = definition(kafka, "kept", Format(AVRO, envelope=Envelope.UPSERT), registry)
    async with running(tmp_path, source) as run:
        await run.until_rows(1)
        targets = run.targets
    newer = registry.register("kept-value", {**VALUE, "fields": [*VALUE["fields"], {"name": "w", "type": "int"}]})
    coordinator = Coordinator(tmp_path, engine=JoinEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})
    await coordinator.start()
    restarted = Source(coordinator, source, [target.output for target in targets])
    task = asyncio.create_task(restarted.ingestion.run())
    kafka.produce("kept", [Record(framed(key, avro(2)), framed(newer, b"\2\2b\6"))])
    assert await restarted.until_rows(2) == [(1, "a"), (2, "b")]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await coordinator.close()


async def test_messages_that_cannot_be_decoded_are_errors_with_their_place(
    kafka: MockCluster, registry: Registry, tmp_path: Path
) -> None:
    key, value = registry.register("poison-key", KEY), registry.register("poison-value", VALUE)
    kafka.create_topic("poison")
    good = framed(value, b"\2\2a")
    poison = [b"", b" poison", framed(77, b""), framed(value, b"\2\x7f"), framed(value, b"\2\2aa"), framed(key, b"\2")]
    records = [Record(framed(key, avro(n)), data) for n, data in enumerate(poison)]
    kafka.produce("poison", [*records, Record(framed(key, avro(50)), good)])
    source = definition(kafka, "poison", Format(AVRO, envelope=Envelope.UPSERT), registry)
    async with running(tmp_path, source) as run:
        assert await run.until_rows(2) == [(5, None), (50, "a")]  # a schema without the field: its default
        failures = run.upstream._topics[0].envelope.failures.live.values()
        found = sorted((failure.detail, failure.message) for failure in failures)
        assert [detail for detail, _ in found] == [
            'Topic "poison", partition 0, offset 0.',
            'Topic "poison", partition 0, offset 1.',
            'Topic "poison", partition 0, offset 2, schema id 77.',
            f'Topic "poison", partition 0, offset 3, schema id {value}.',
            f'Topic "poison", partition 0, offset 4, schema id {value}.',
        ]
        for (_, message), reason in zip(
            found,
            [
                "Confluent-style avro datum is too few bytes: expected at least 5 bytes, got 0",
                "wrong Confluent-style avro serialization magic: expected 0, got 32",
                "failed to fetch Avro schema with ID 77: schema not found",
                "field v: negative length -64",
                "1 bytes left over after the value",
            ],
            strict=True,
        ):
            assert reason in message
        await run.until(lambda: bool(run.context.statistics.stalls))
        error = run.context.statistics.stalls[run.targets[0].id]()
        assert error is not None
        assert not run.context.statistics.errors  # a later message can remove the error
        assert error.message.startswith("Envelope error: Upsert: Value error: avro deserialization error: ")
        kafka.produce("poison", [Record(framed(key, avro(n)), None) for n in range(5)])
        await run.until(lambda: not run.context.statistics.stalls)


async def test_debezium_through_kafka(kafka: MockCluster, registry: Registry, tmp_path: Path) -> None:
    key = registry.register("dbz-key", KEY)
    value = registry.register("dbz-value", envelope_schema("postgres"))
    kafka.create_topic("dbz")

    def record(event: Event) -> Record:
        message = event.message()
        assert message.key is not None
        assert message.value is not None
        return Record(framed(key, message.key), framed(value, message.value))

    events = [
        Event("r", None, (1, "a"), (None, 5), "last"),
        Event("u", (1, "a"), (1, "b"), (1, 7)),
        Event("c", None, (2, "c"), (1, 8)),
        Event("u", (1, "a"), (1, "b"), (1, 7)),
        Event("c", None, (2, "c"), (1, 8)),
        Event("d", (2, "c"), None, (1, 9)),
        Event("c", None, (3, "d"), (1, 10)),
    ]
    kafka.produce("dbz", map(record, events))
    format = Format(AVRO, envelope=Envelope.DEBEZIUM)
    async with running(tmp_path, definition(kafka, "dbz", format, registry)) as run:
        await run.until(lambda: run.context.statistics.offset_committed == len(events))
        assert await run.rows() == [(1, "b"), (3, "d")]


# -- transactions ---------------------------------------------------------------------------------------------------


def states_of(messages: Sequence[Captured], schemas: dict[int, str]) -> list[tuple[Any, Any]]:
    """The ids and names or notes of both tables after the snapshot, and after each transaction."""
    parsed = {id: fastavro.parse_schema(json.loads(text)) for id, text in schemas.items()}

    def decoded(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed[int.from_bytes(data[1:5], "big")], None)

    tables: dict[str, dict[int, str]] = {CUSTOMERS: {}, ORDERS: {}}
    events: dict[str, list[tuple[str, Any]]] = {}
    for message in messages:
        if message.topic != TRANSACTIONS and message.value is not None:
            value = decoded(message.value)
            id = (value["transaction"] or {"id": ":"})["id"].partition(":")[0]
            events.setdefault(id, []).append((message.topic, value))
    ends = [decoded(m.value) for m in messages if m.topic == TRANSACTIONS and m.value is not None]
    found = []
    for id in ["", *(end["id"].partition(":")[0] for end in ends if end["status"] == "END")]:
        for topic, value in events.pop(id):
            old, new = value["before"], value["after"]
            if new is None:
                del tables[topic][old["id"]]
            else:
                tables[topic][new["id"]] = new.get("name") or new.get("note")
        found.append((dict(tables[CUSTOMERS]), dict(tables[ORDERS])))
    assert not events
    return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.crash)])
async def test_a_subscriber_sees_whole_transactions(
    kafka: MockCluster, registry: Registry, tmp_path: Path, seed: int
) -> None:
    generator = random.Random(seed)
    schemas, messages = captured()
    registry.schemas = dict(schemas)
    topics = {name: f"s{seed}.{name}" for name in (CUSTOMERS, ORDERS, TRANSACTIONS)}
    for topic, (key, value) in zip(topics.values(), [(1, 2), (3, 4), (5, 6)], strict=True):
        registry.subjects |= {f"{topic}-key": [key], f"{topic}-value": [value]}
        kafka.create_topic(topic)
    source = replace(
        definition(kafka, "", Format(AVRO, envelope=Envelope.DEBEZIUM_UPSERT), registry),
        options={"transaction topic": topics[TRANSACTIONS]},
        tables=ForTables(tables=((topics[CUSTOMERS], "customers"), (topics[ORDERS], "orders"))),
    )
    written = {}
    for name in topics:
        own = [message for message in messages if message.topic == name]
        crash = generator.randrange(len(own) // 2, len(own))
        first = 40 if name == ORDERS else 20  # the connector repeats no rows of the snapshot
        written[name] = own[:crash] + own[max(crash - generator.randint(0, 8), min(first, crash)) :]
    expected = states_of(messages, schemas)
    pieces = [name for name, own in written.items() for _ in range(0, len(own), 6)]
    generator.shuffle(pieces)
    left = {name: iter(own) for name, own in written.items()}
    while len(pieces) > 12:  # restarts of the server
        async with running(tmp_path, source) as run:
            await run.until(lambda: run.ingestion.status is Status.RUNNING)
            for _ in range(12):
                received = run.context.statistics.messages_received
                name = pieces.pop()
                part = list(itertools.islice(left[name], 6))
                kafka.produce(topics[name], [Record(m.key, m.value) for m in part])
                await run.until_received(received + len(part))
    async with running(tmp_path, source) as run:
        for name, rest in left.items():
            kafka.produce(topics[name], [Record(m.key, m.value) for m in rest])
        coordinator, (customers, orders) = run.coordinator, (target.id for target in run.targets)

        async def state(time: Timestamp) -> tuple[Any, Any]:
            found = []
            for id, column in ((customers, "c1"), (orders, "c3")):
                rows = await coordinator.reads.rows(id, time)
                found.append(dict(zip(rows["c0"].to_pylist(), rows[column].to_pylist(), strict=True)))
            return found[0], found[1]

        while await state(coordinator.latest_time()) != expected[-1]:
            assert run.ingestion.status is not Status.FAILED, run.ingestion.error
            await coordinator.frontiers.moved.wait()
        upper = coordinator.latest_time() + 1
        times = {time for id in (customers, orders) for time in coordinator.log.times(id, 0, upper)}
        seen = [await state(time) for time in sorted(times)]
        begin = next(number for number, found in enumerate(seen) if found in expected)
        positions = [expected.index(found) for found in seen[begin:]]  # ValueError: a part of a transaction
        assert positions == sorted(positions)


# -- definitions that are refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"connection": {}}, "option BROKER of a Kafka connection is missing"),
        ({"connection": {"broker": "x", "a b": "c"}}, 'unrecognized option "A B" of a Kafka connection'),
        ({"options": {"topic": "none"}}, 'topic "none" does not exist'),
        ({"options": {"topic": "refused", "x": "1"}}, 'unrecognized option "X" of a Kafka source'),
        ({"options": {}}, "option TOPIC of a Kafka source is missing"),
        ({"options": {"topic": "refused", "start offset": "a"}}, "START OFFSET must be a list of integers"),
        ({"options": {"topic": "refused", "start offset": f"0,{2**63}"}}, "START OFFSET or START TIMESTAMP is out of"),
        ({"options": {"topic": "refused", "start timestamp": f"-{2**63}"}}, "START OFFSET or START TIMESTAMP is out"),
        ({"tables": ForTables(all=True)}, "reads the topics that FOR TABLES names"),
        ({"format": Format(TEXT, envelope=Envelope.UPSERT)}, "UPSERT requires that KEY FORMAT be specified"),
        ({"format": Format(TEXT, include=(Include("key"),))}, "INCLUDE KEY requires specifying KEY FORMAT"),
        ({"format": Format(TEXT, TEXT, envelope=Envelope.DEBEZIUM)}, "requires that VALUE FORMAT is set to AVRO"),
        ({"format": Format(AVRO)}, 'schema registry has no subject "refused-value"'),
        ({"format": Format(TEXT, include=(Include("offset", "text"),))}, 'column "text" specified more than once'),
    ],
)
async def test_definitions_that_are_refused(
    kafka: MockCluster, registry: Registry, changes: dict[str, Any], message: str
) -> None:
    valid = definition(kafka, "refused", Format(TEXT), registry)
    with pytest.raises(PgError, match=message):
        await KafkaKind().outputs(replace(valid, **changes))


async def test_secrets_are_not_shown() -> None:
    connection = {"broker": "b", "sasl username": "u", "sasl password": Secret("hidden"), "sasl mechanisms": "PLAIN"}
    connection["ssl key"] = Secret("hidden")  # it is no key
    source = SourceDefinition("kafka", connection, {"topic": "t"}, Format(TEXT))
    with pytest.raises(PgError, match="Kafka connection is invalid") as error:
        await KafkaKind().outputs(source)
    assert "hidden" not in f"{error.value!r} {error.value.message} {error.value.detail} {error.value.hint} {source!r}"
