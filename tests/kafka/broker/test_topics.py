"""What Apache Kafka does with topics: partitions, compression, timestamps, transactions, retention, deletion."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import confluent_kafka
import psycopg
import pytest

from server.ingest.kafka.consumer import FETCH_BYTES, TopicConsumer
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.reading import AVRO, connected, serving, until, until_status
from tests.kafka.debezium import envelope_schema
from tests.kafka.records import Record, send
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka


def texts(numbers: Iterable[int], partition: int = 0) -> list[Record]:
    return [Record(None, b"%d" % number, partition) for number in numbers]


def rows(*numbers: Iterable[int]) -> list[tuple[str]]:
    return [(str(number),) for part in numbers for number in part]


def create(connection: psycopg.Connection, topic: str, options: str = "") -> None:
    """A source of the topic's name, with a row for each message."""
    connection.execute(
        f"CREATE SOURCE {topic} FROM KAFKA CONNECTION kafka (TOPIC '{topic}'{options}) FORMAT TEXT".encode()
    )


def test_partitions_that_are_added_later_are_read(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("growing", 3)
    for partition in range(3):
        kafka.produce("growing", texts(range(10 * partition, 10 * partition + 10), partition))
    create(connection, "growing")
    until(connection, "growing", rows(range(30)))
    kafka.add_partitions("growing", 5)
    for partition in range(5):
        kafka.produce("growing", texts(range(100 + partition, 200 + partition, 10), partition))
    until(connection, "growing", rows(range(30), *(range(100 + n, 200 + n, 10) for n in range(5))))


async def test_partitions_advance_together(kafka: KafkaBroker) -> None:
    """By default, a consumer receives a megabyte of one partition before the first message of another one."""
    count, size, partitions = 96, 16 * 1024, 4
    share = FETCH_BYTES // partitions // size  # messages
    kafka.create_topic("even", partitions)
    for partition in range(partitions):
        records = [Record(None, os.urandom(size), partition) for _ in range(count)]
        kafka.produce("even", records, **{"batch.size": 2 * size, "batch.num.messages": 1})
    consumer = TopicConsumer({"broker": kafka.address}, "even", "test", evenly=True)
    read, furthest = [0] * partitions, 0
    try:
        await consumer.assign(dict.fromkeys(range(partitions), 0))
        while sum(read) < count * partitions:
            poll = await consumer.poll(4 << 20)
            for partition in [] if poll is None else poll.messages.partitions.tolist():
                read[partition] += 1
                furthest = max(furthest, max(read) - min(read))
    finally:
        await consumer.close()
    assert furthest <= 3 * share < FETCH_BYTES // size


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages(kafka: KafkaBroker, connection: psycopg.Connection, compression: str) -> None:
    kafka.create_topic(compression)
    kafka.produce(compression, texts(range(1_000)), **{"compression.type": compression})
    create(connection, compression)
    until(connection, compression, rows(range(1_000)))


def test_a_message_of_ten_megabytes(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("large")
    large = b"x" * 10_000_000
    kafka.produce("large", [Record(None, large), Record(None, b"small")], **{"message.max.bytes": 16_000_000})
    create(connection, "large")
    until(connection, "large", [(large.decode(),), ("small",)])


def test_a_source_begins_at_a_timestamp(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    start = 1_700_000_000_000
    kafka.create_topic("dated", 2, retention_ms="-1")  # by default these messages are too old to be kept
    kafka.produce("dated", [Record(None, b"%d" % n, n % 2, timestamp=start + 1_000 * n) for n in range(10)])
    for name, timestamp in (
        ("middle", start + 3_500),
        ("exact", start + 4_000),
        ("late", start + 60_000),
        ("ago", -60_000),
    ):
        connection.execute(
            f"CREATE SOURCE {name} FROM KAFKA CONNECTION kafka "
            f"(TOPIC 'dated', START TIMESTAMP {timestamp}) FORMAT TEXT".encode()
        )
        until_status(connection, name, "running")
    until(connection, "middle", rows(range(4, 10)))
    until(connection, "exact", rows(range(4, 10)))
    kafka.produce("dated", texts([10], 1))  # produced now
    until(connection, "late", rows([10]))
    until(connection, "ago", rows([10]))
    until(connection, "middle", rows(range(4, 11)))


def transactional(kafka: KafkaBroker, id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "transactional.id": id})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def test_messages_of_transactions_appear_after_their_commit(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("committed", 2)
    producer = transactional(kafka, "committed")
    send(producer, "committed", texts([1, 2]))
    kafka.produce("committed", texts([3]))  # not transactional, and after messages whose outcome is not known
    create(connection, "committed")
    kafka.produce("committed", texts([4], 1))
    until(connection, "committed", rows([4]))
    send(producer, "committed", texts([5], 1))
    kafka.produce("committed", texts([6], 1))
    producer.commit_transaction(60)
    until(connection, "committed", rows(range(1, 7)))


def test_messages_of_aborted_transactions_never_appear(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("aborted", 2)
    create(connection, "aborted")
    producer = transactional(kafka, "aborted")
    send(producer, "aborted", [*texts([1, 2]), *texts([3], 1)])
    kafka.produce("aborted", texts([4]))
    producer.abort_transaction(60)
    kafka.produce("aborted", texts([5], 1))
    until(connection, "aborted", rows([4, 5]))
    producer.begin_transaction()
    send(producer, "aborted", texts([6]))
    producer.commit_transaction(60)
    until(connection, "aborted", rows([4, 5, 6]))


def test_retention_may_delete_everything_that_was_read(kafka: KafkaBroker, registry: Registry, tmp_path: Path) -> None:
    """The marks of transactions, and the messages of aborted ones, are after the last message that was read."""
    kafka.create_topic("retained")
    producer = transactional(kafka, "retained")
    send(producer, "retained", texts([1, 2]))
    producer.commit_transaction(60)
    producer.begin_transaction()
    send(producer, "retained", texts([3]))
    producer.abort_transaction(60)
    with serving(tmp_path) as server, connected(server, kafka, registry) as connection:
        create(connection, "retained")
        until(connection, "retained", rows([1, 2]))
        query = "SELECT offset_committed FROM mz_internal.mz_source_statistics"
        while connection.execute(query).fetchone() != (5,):  # 3 messages and 2 marks
            pass
    kafka.delete_records("retained", 5)
    with serving(tmp_path) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        kafka.produce("retained", texts([4]))
        until(connection, "retained", rows([1, 2, 4]))


def test_messages_that_were_deleted_before_they_were_read(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    kafka.create_topic("truncated")
    kafka.produce("truncated", texts(range(5)))
    with serving(tmp_path) as server, connected(server, kafka, registry) as connection:
        create(connection, "truncated")
        until(connection, "truncated", rows(range(5)))
    kafka.produce("truncated", texts(range(5, 10)))
    kafka.delete_records("truncated", 8)
    with serving(tmp_path) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        error = until_status(connection, "truncated", "failed")
        assert error is not None
        assert 'topic "truncated" no longer has the messages of partition 0' in error
        assert sorted(connection.execute("TABLE truncated").fetchall()) == rows(range(5))


def test_a_topic_that_is_deleted(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("deleted")
    kafka.produce("deleted", texts(range(5)))
    create(connection, "deleted")
    until(connection, "deleted", rows(range(5)))
    kafka.delete_topic("deleted")
    error = until_status(connection, "deleted", "failed")
    assert error is not None
    assert 'topic "deleted" does not exist' in error


def test_a_topic_that_was_created_again_while_the_server_was_down(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path
) -> None:
    kafka.create_topic("again")
    kafka.produce("again", texts(range(5)))
    with serving(tmp_path) as server, connected(server, kafka, registry) as connection:
        create(connection, "again")
        until(connection, "again", rows(range(5)))
    kafka.delete_topic("again")
    kafka.create_topic("again")
    kafka.produce("again", texts(range(10)))  # more than were read
    with serving(tmp_path) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        error = until_status(connection, "again", "failed")
        assert error is not None
        assert 'topic "again" was deleted and created again' in error


def test_a_topic_that_is_created_again_while_it_is_read(kafka: KafkaBroker, connection: psycopg.Connection) -> None:
    kafka.create_topic("recreated")
    kafka.produce("recreated", texts(range(5)))
    create(connection, "recreated")
    until(connection, "recreated", rows(range(5)))
    kafka.delete_topic("recreated")
    kafka.create_topic("recreated")
    kafka.produce("recreated", texts(range(10)))
    until_status(connection, "recreated", "failed")


def test_classic_debezium_on_a_compacted_topic_is_refused(
    kafka: KafkaBroker, connection: psycopg.Connection, registry: Registry
) -> None:
    for topic, policy in (("compact", "compact"), ("retained_and_compact", "compact,delete"), ("kept", "delete")):
        kafka.create_topic(topic, cleanup_policy=policy)
        registry.register(f"{topic}-key", {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]})
        registry.register(f"{topic}-value", envelope_schema("postgres"))
        statement = f"CREATE SOURCE {topic} FROM KAFKA CONNECTION kafka (TOPIC '{topic}') {AVRO} ENVELOPE DEBEZIUM"
        if policy == "delete":
            connection.execute(statement.encode())
            continue
        with pytest.raises(psycopg.Error, match=f'topic "{topic}" is compacted') as caught:
            connection.execute(statement.encode())
        assert caught.value.sqlstate == "55000"
        assert "DEBEZIUM UPSERT" in str(caught.value.diag.message_hint)
        connection.execute(f"{statement} UPSERT".encode())
