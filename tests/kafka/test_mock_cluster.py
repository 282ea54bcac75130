"""The brokers of the other tests behave as a cluster does."""

from __future__ import annotations

import confluent_kafka
import pytest

from tests.kafka.mock_cluster import Api, MockCluster
from tests.kafka.records import Record


def consumed(kafka: MockCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.address, "group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < count:
        found += [message.value() for message in consumer.consume(100, 0.2) if not message.error()]
    consumer.close()
    return found


@pytest.mark.slow
def test_messages_are_consumed_in_order_after_injected_errors() -> None:
    with MockCluster() as kafka:
        kafka.create_topic("t")
        kafka.produce("t", [Record(b"k", b"%d" % i) for i in range(10)])
        kafka.fail(Api.FETCH, [confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION] * 2)
        assert consumed(kafka, "t", 10) == [b"%d" % i for i in range(10)]


def test_deleted_records_raise_the_low_watermark() -> None:
    with MockCluster() as kafka:
        kafka.create_topic("t")
        kafka.produce("t", [Record(b"k", b"lost"), Record(b"k", b"kept")])
        kafka.delete_records("t", 1)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "g"})
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), 10) == (1, 2)
        consumer.close()
