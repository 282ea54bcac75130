"""Sinks into Apache Kafka: committed messages are exactly those of the history, although servers are killed.

TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import confluent_kafka
import psycopg
import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from catalog.source_definition import Envelope
from protocol.avro.schema import parse_schema
from protocol.cdcv2.avro_form import AvroDecoder, CdcSchema
from protocol.cdcv2.reader import Reader
from server.egress.kafka.producer import DOWN_S
from server.egress.kafka.row_topic import TRANSACTIONAL_ID_PREFIX
from tests.docs.pages import PAGES
from tests.examples import seeds
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.reading import serving
from tests.kafka.broker.sink_child import FORMATS
from tests.kafka.registry import Registry
from tests.kafka.sinks import (
    PROGRESS,
    SINK,
    message_values,
    read_topic,
    replayed,
    sink_of,
    started,
    until_written,
    upserted,
)
from tests.server.egress.child import until_stalled, write
from tests.server.egress.histories import Change, by_key, history, rows_of, upserts
from tests.server.egress.postgres.test_kills import killed_at_exit

pytestmark = pytest.mark.kafka

KILLS = 4
PARTITIONS = 3
_NO_ANSWER = (
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._TIMED_OUT,
)


@pytest.mark.parametrize("seed", seeds(2))
def test_the_topics_have_each_change_although_the_server_is_killed(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    run = SinkRun(kafka, registry, tmp_path, f"killed{seed}")
    for _ in range(KILLS):
        with run.writing() as child:
            run.wait_for_changes(child)
            sleep(random.random())
    run.check()


@pytest.mark.parametrize("seed", seeds(1))
def test_the_topics_have_each_change_although_the_broker_is_killed(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path, seed: int
) -> None:
    """The sinks wait for the broker, or stall, or are killed while it is down."""
    random = Random(seed)
    run = SinkRun(kafka, registry, tmp_path, f"down{seed}")
    with run.writing() as child:
        for outage_s in (random.random(), random.random(), DOWN_S + 2.0):
            run.wait_for_changes(child)
            sleep(random.random())
            kafka.kill()
            sleep(outage_s)
            kafka.start()
        run.wait_for_changes(child)
        sleep(random.random())
        kafka.kill()
    kafka.start()
    run.check()


class SinkRun:
    """A process whose sinks write three topics (`sink_child.py`), and the check of these topics."""

    def __init__(self, kafka: KafkaBroker, registry: Registry, directory: Path, name: str) -> None:
        self._kafka = kafka
        self._registry = registry
        self._directory = directory
        self._topics = {envelope: f"{name}-{envelope}" for envelope in FORMATS}
        kafka.create_topic(self._watched, PARTITIONS)  # the sinks create the others
        command = [sys.executable, "-m", "tests.kafka.broker.sink_child", str(directory)]
        self._command = [*command, kafka.address, registry.url, name]

    @property
    def _watched(self) -> str:
        return self._topics[next(iter(FORMATS))]

    def writing(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """A process that is killed at the end of the block."""
        return killed_at_exit([*self._command, "1000000"])

    def wait_for_changes(self, child: subprocess.Popen[bytes]) -> None:
        """Waits until a topic has more messages than now."""
        with watching(self._kafka.address) as watcher:
            before, deadline = ends(watcher, self._watched, PARTITIONS), monotonic() + 60
            while ends(watcher, self._watched, PARTITIONS) <= before:
                assert child.poll() is None
                assert monotonic() < deadline

    def check(self) -> None:
        """The committed messages are those of the changes in the log of the table, once each."""
        kafka, registry, topics = self._kafka, self._registry, self._topics
        subprocess.run([*self._command, "10"], check=True, timeout=90)
        changes = asyncio.run(history(self._directory))
        assert len({time for _, _, time, _ in changes}) > 50
        rows = {n: v for n, v, _ in rows_of(changes)}
        upsert, debezium, materialize = (read_topic(kafka.address, topic) for topic in topics.values())
        assert by_key(message_values(upsert)) == by_key(upserts(changes))
        assert {value["n"]: value["v"] for value in upserted(message_values(upsert)).values()} == rows
        images = message_values(debezium, registry.schemas)
        assert replayed(images) == dict.fromkeys(rows.items(), 1)
        assert len(images) == len(upserts(changes))
        ids = registry.subjects[f"{topics[list(FORMATS)[2]]}-value"]
        decoder = AvroDecoder(CdcSchema.of(parse_schema(registry.schemas[ids[-1]])))
        found = decoder.decode(pa.array([message.value for message in materialize], pa.binary()), 5)
        assert not found.failed.any()
        batch = Reader(decoder.schema).receive(found.updates, found.statements)
        assert batch is not None
        updates = [tuple(row.values()) for row in batch.updates.to_pylist()]
        begin = min(time for _, _, time, _ in updates)
        assert sorted(updates, key=repr) == sorted(since(changes, begin), key=repr)


@contextmanager
def watching(address: str) -> Iterator[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "watching", "log_level": 2})
    try:
        yield consumer
    finally:
        consumer.close()


def ends(watcher: Any, topic: str, partitions: int) -> int:
    """The sum of the offsets after the last messages; 0 while a partition has no leader, or the broker is down."""
    places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(partitions)]
    try:
        return sum(watcher.get_watermark_offsets(place, timeout=10)[1] for place in places)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() not in _NO_ANSWER:
            raise
        return 0


def since(changes: list[Change], begin: int) -> list[Change]:
    """The rows at a time as changes at it, and the changes after it."""
    rows = rows_of([change for change in changes if change[2] <= begin])
    return [(n, v, begin, count) for n, v, count in rows] + [change for change in changes if change[2] > begin]


async def test_a_sink_is_fenced_by_another_producer_with_its_identity(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    """A second server has such a producer if its directory is a copy of the first one's."""
    options = {"bootstrap.servers": kafka.address, "transactional.id": TRANSACTIONAL_ID_PREFIX + "id-fenced"}
    errors: list[str | None] = []
    async with started(tmp_path, kafka, registry, sink_of("fenced")) as (coordinator, sinks):
        # After another error of the broker the sink begins again, and fences the other producer.
        while 'another server writes to topic "fenced" for the same sink' not in errors:
            await until_written(coordinator, sinks)
            other = confluent_kafka.Producer(options)
            await asyncio.to_thread(other.init_transactions)
            errors.append(None)
            await write(coordinator, (len(errors), "a", 1))
            while errors[-1] is None:
                await coordinator.frontiers.moved.wait()
                errors[-1] = sinks.running[SINK].error
        await until_written(coordinator, sinks)
    found = [value["n"] for _, value in message_values(read_topic(kafka.address, "fenced"))]
    assert found == [*range(1, len(errors) + 1)]


async def test_a_frontier_after_an_open_transaction_is_found(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    """The transaction of another sink hides it from readers of committed records until it ends."""
    sink = sink_of("hidden")
    async with started(tmp_path, kafka, registry, sink) as (coordinator, sinks):
        await until_written(coordinator, sinks)
        other = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "transactional.id": "other"})
        other.init_transactions()
        other.begin_transaction()
        other.produce(PROGRESS, b"", b"other")
        other.flush()
        await write(coordinator, (1, "a", 1))
        await until_written(coordinator, sinks)
    async with started(tmp_path, kafka, registry, sink) as (coordinator, sinks):
        await write(coordinator, (2, "b", 1))
        await asyncio.sleep(1)
        assert sinks.running[SINK].frontier is None
        other.commit_transaction()
        await until_written(coordinator, sinks)
    assert [value["n"] for _, value in message_values(read_topic(kafka.address, "hidden"))] == [1, 2]


async def test_a_message_that_is_too_large_stalls_the_sink_and_is_written_later(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    kafka.create_topic("small", max_message_bytes="2000")
    async with started(tmp_path, kafka, registry, sink_of("small", compression_type="none")) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1), (2, "x" * 5_000, 1), (3, "c", 1))
        assert await until_stalled(coordinator, sinks, SINK) == 'message too large for topic "small"'
        assert read_topic(kafka.address, "small") == []
        larger = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "small", incremental_configs=[larger])
        kafka.admin.incremental_alter_configs([resource])[resource].result()
        await until_written(coordinator, sinks)
    assert [key["n"] for key, _ in message_values(read_topic(kafka.address, "small"))] == [1, 2, 3]


def test_the_page_shows_statements_that_work(kafka: KafkaBroker, registry: Registry, tmp_path: Path) -> None:
    page = (PAGES / "sinks.md").read_text().replace("localhost:9092", kafka.address)
    (block,) = re.findall(r"^```sql\n(CREATE CONNECTION kafka .*?)^```$", page, re.MULTILINE | re.DOTALL)
    with serving(tmp_path) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(block.replace("http://localhost:8081", registry.url).encode())
        wanted = {'{"account": 1}': Decimal("10.00"), '{"account": 2}': Decimal("20.00")}
        found: dict[str, Any] = {}
        while found != wanted:
            messages = read_topic(kafka.address, "balances") if "balances" in kafka.admin.list_topics().topics else []
            values = upserted(message_values(messages, registry.schemas))
            found = {key: value["balance"] for key, value in values.items()}
    assert {message.partition for message in messages} <= {0, 1, 2}


async def test_a_topic_that_was_created_again_stalls_the_sink(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    """The new topic lacks the messages that were in the former one."""
    kafka.create_topic("sink-again")
    async with started(tmp_path, kafka, registry, sink_of("sink-again")) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1))
        await until_written(coordinator, sinks)
    async with started(tmp_path, kafka, registry) as (coordinator, sinks):
        await write(coordinator, (2, "a", 1))
        await until_written(coordinator, sinks)
    kafka.delete_topic("sink-again")
    kafka.create_topic("sink-again")
    async with started(tmp_path, kafka, registry) as (coordinator, sinks):
        await write(coordinator, (3, "a", 1))
        assert await until_stalled(coordinator, sinks, SINK) == 'topic "sink-again" was deleted and created again'
    assert read_topic(kafka.address, "sink-again") == []


@pytest.mark.parametrize("envelope", [Envelope.UPSERT, Envelope.MATERIALIZE])
@pytest.mark.parametrize("is_down", [False, True])
async def test_a_topic_that_is_created_again_is_noticed(
    kafka: KafkaBroker,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    envelope: Envelope,
    is_down: bool,
) -> None:
    """While the sink is connected, within CHECK_S; and when it connects again."""
    monkeypatch.setattr("server.egress.kafka.topic.CHECK_S", 0.2)
    name = f"noticed-{envelope}-{is_down}"
    created_again = f'topic "{name}" was deleted and created again'
    kafka.create_topic(name)
    async with started(tmp_path, kafka, registry, sink_of(name, envelope=envelope)) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1))
        await until_written(coordinator, sinks)
        if not is_down:
            kafka.delete_topic(name)
            kafka.create_topic(name)
            await asyncio.sleep(0.2)
            await write(coordinator, (2, "a", 1))
            # A check between the two requests to the broker finds no topic.
            assert await until_stalled(coordinator, sinks, SINK) in {created_again, f'topic "{name}" does not exist'}
    if is_down:
        kafka.delete_topic(name)
        kafka.create_topic(name)
    async with started(tmp_path, kafka, registry) as (coordinator, sinks):
        assert await until_stalled(coordinator, sinks, SINK) == created_again
