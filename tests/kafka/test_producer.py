"""The producer of a sink, on librdkafka's mock brokers."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from time import sleep
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from catalog.ids import ObjectId, Timestamp
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Written
from server.egress.kafka import producer, progress, row_topic
from server.egress.kafka.output import TopicOutput
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.progress import record_key, record_value
from server.egress.kafka.row_topic import RowTopic
from server.egress.net_changes import Pairs
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.consumer import TopicConsumer
from server.ingest.upstream import UpstreamError
from tests.kafka.mock_cluster import Api, MockCluster
from tests.kafka.records import Record
from tests.kafka.sinks import read_topic
from tests.polling import HANG_S


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


def topics(kafka: MockCluster) -> set[str]:
    consumer: Any = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "test"})
    try:
        return set(consumer.list_topics(timeout=10).topics)
    finally:
        consumer.close()


@asynccontextmanager
async def producer_of(kafka: MockCluster, topic: str, transactional_id: str | None) -> AsyncIterator[TopicProducer]:
    tested = TopicProducer({"broker": kafka.address}, topic, transactional_id=transactional_id)
    try:
        yield tested
    finally:
        await tested.close()


def definition(kafka: MockCluster) -> SinkDefinition:
    return SinkDefinition(
        "s",
        "t",
        (Column("n", "int8"),),
        {"broker": kafka.address, "progress topic": "none"},
        {"topic": "rows"},
        Format(Encoding("json", ObjectId("u1")), envelope=Envelope.UPSERT),
        ("n",),
        identity="x",
    )


async def test_changes_are_written_to_the_partitions_in_turn(kafka: MockCluster) -> None:
    """librdkafka would choose one partition for all messages of 10 ms."""
    kafka.create_topic("turns", 4)
    format = Format(Encoding("json"), envelope=Envelope.MATERIALIZE)
    output = TopicOutput(replace(definition(kafka), options={"topic": "turns"}, format=format, key=()))
    await output.open(Timestamp(1))
    try:
        for start in range(0, 40, 5):
            assert await output.append(b"%02d" % number for number in range(start, start + 5)) == (5, 10)
        await output.flush()
    finally:
        await output.close()
    numbers: dict[int, list[int]] = defaultdict(list)
    for read in read_topic(kafka.address, "turns"):
        numbers[read.partition].append(int(read.value or b""))
    first = {partition: own[0] for partition, own in numbers.items()}
    assert sorted(first.values()) == [0, 1, 2, 3]
    assert numbers == {partition: list(range(number, 40, 4)) for partition, number in first.items()}


async def test_a_deleted_topic_is_not_created_again(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "GONE_S", 0.1)
    kafka.create_topic("deleted")
    async with producer_of(kafka, "deleted", None) as tested:
        await tested.send([b"a"])
        await tested.flush()
        kafka.delete_topic("deleted")
        with pytest.raises(PgError, match=r'^topic "deleted" does not exist$') as caught:
            await tested.send([b"b"])
            await tested.flush()
    assert caught.value.sqlstate == SqlState.UNDEFINED_OBJECT
    assert "deleted" not in topics(kafka)


async def test_a_commit_fails_soon_after_the_topic_was_deleted(
    kafka: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "METADATA_S", 0.1)
    monkeypatch.setattr(producer, "GONE_S", 0.1)
    kafka.create_topic("while-running")
    async with producer_of(kafka, "while-running", "while-running") as tested:
        await tested.start()
        await tested.begin()
        await tested.send([b"a"])
        await tested.commit()
        kafka.delete_topic("while-running")
        await tested.begin()
        with pytest.raises(PgError, match=r'^topic "while-running" does not exist$'):
            await tested.send([b"b"])  # fails if the deletion is known by then
            await asyncio.wait_for(tested.commit(), HANG_S)


async def test_an_error_names_the_topic_of_the_message(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "GONE_S", 0.1)
    async with producer_of(kafka, "own", "other") as tested:
        await tested.start()
        await tested.begin()
        with pytest.raises(PgError, match=r'^topic "other" does not exist$'):
            await tested.send([b"a"], topic="other")
            await tested.commit()
    assert "other" not in topics(kafka)


async def test_a_transaction_that_took_too_long(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.create_topic("long")
    async with producer_of(kafka, "long", "long") as tested:
        await tested.start()
        await tested.begin()
        tested._begun -= 1.1
        monkeypatch.setattr(producer, "TRANSACTION_S", 1.0)
        kafka.fail(Api.PRODUCE, [KafkaError.INVALID_PRODUCER_EPOCH])
        with pytest.raises(
            PgError, match=r'^transaction timeout: writing to topic "long" took more than 1 seconds$'
        ) as caught:
            await tested.send([b"a"])
            await tested.commit()
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED


async def test_a_call_after_a_fatal_error_fails_with_its_cause(kafka: MockCluster) -> None:
    def messages() -> Iterator[bytes]:
        while True:  # until a message is not accepted, because an earlier one made the producer unusable
            yield b"a"
            sleep(0.001)

    kafka.create_topic("fenced")
    async with producer_of(kafka, "fenced", "fenced") as tested:
        await tested.start()
        await tested.begin()
        kafka.fail(Api.PRODUCE, [KafkaError.INVALID_PRODUCER_EPOCH])
        with pytest.raises(UpstreamError, match=r'^another server writes to topic "fenced" for the same sink'):
            await asyncio.wait_for(tested.send(messages()), HANG_S)


async def test_the_frontier_of_a_sink_that_never_started_is_not_deleted(kafka: MockCluster) -> None:
    topic = RowTopic(definition(kafka), Written())
    try:
        await topic.forget()
    finally:
        await topic.close()
    assert "none" not in topics(kafka)


async def test_messages_are_converted_in_a_thread(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    class Messages:
        def to_pylist(self) -> list[bytes]:
            threads.append(threading.current_thread())
            return [b"a"]

    async def send(*_: object) -> None: ...

    topic: Any = RowTopic(definition(kafka), Written())
    topic._encoder = SimpleNamespace(
        partitions=lambda *_: None, keys=lambda *_: Messages(), values=lambda *_: Messages()
    )
    topic._producer = SimpleNamespace(send=send)
    topic._written_topic = SimpleNamespace(partitions=1)
    monkeypatch.setattr(row_topic, "_size", lambda _: 1)
    one = np.zeros(1, np.int64)
    await topic._send_pairs(pa.table([[1]], ["c0"]), Pairs(one - 1, one, one))
    assert len(threads) == 2
    assert threading.current_thread() not in threads


class Brokers:
    """A producer of librdkafka whose queue is full while no broker can be reached."""

    def __init__(self, tested: TopicProducer, full: int) -> None:
        self._tested = tested
        self._full = full

    def produce(self, *_: object) -> None:
        if self._full > 0:
            self._full -= 1
            self._tested._brokers.failed(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            raise BufferError

    def poll(self, _: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


async def test_brokers_that_are_back_are_not_down_any_more(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later wait for a full queue has the whole time limit again."""
    async with producer_of(kafka, "rows", None) as tested:
        librdkafka = tested._producer
        tested._producer = Brokers(tested, 3)
        try:
            await tested.send([b"1", b"2"])
            assert tested._brokers.down_since is None
            monkeypatch.setattr(producer, "DOWN_S", -1.0)
            tested._producer = Brokers(tested, 3)
            with pytest.raises(UpstreamError, match="could not connect to Kafka"):
                await tested.send([b"3"])
        finally:
            tested._producer = librdkafka


@pytest.mark.parametrize("written", ["first", "middle", "last", "never"])
async def test_the_progress_topic_is_read_backwards(
    kafka: MockCluster, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """A sink that has written recently reads little, and one that has not finds its record."""
    connection = {"broker": kafka.address, "progress topic": f"progress-{written}"}
    kafka.create_topic(f"progress-{written}")
    at = {"first": 0, "middle": 50, "last": 99}.get(written)
    own, other = record_key("own"), record_key("other")
    records = [Record(own if n == at else other, record_value(Timestamp(n + 1), None)) for n in range(100)]
    if at is not None and at > 0:
        records[0] = Record(own, record_value(Timestamp(7), None))
    kafka.produce(f"progress-{written}", records)
    monkeypatch.setattr(progress, "WINDOW", 10)
    begins: list[int] = []
    assign = TopicConsumer.assign

    async def assigned(self: TopicConsumer, offsets: Mapping[int, int]) -> None:
        begins.append(offsets[0])
        await assign(self, offsets)

    monkeypatch.setattr(TopicConsumer, "assign", assigned)
    found = await progress.read_committed(connection, "own")
    assert found == (None if at is None else progress.Committed(Timestamp(at + 1), None))
    assert begins == {"last": [90]}.get(written, [90, 10] if written == "middle" else [90, 10, 0])
