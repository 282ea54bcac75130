"""A client of Kafka brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from testdrive.report import CommandFailed

_MESSAGE_BYTES_MAX = 100_000_000
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `partition` None: the producer chooses it by the key. `timestamp_ms` None: the current time."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Cluster:
    """The brokers at an address. All methods raise CommandFailed.

    A cluster without a controller, as librdkafka's mock brokers are, cannot be administered. There, `create_topic`
    accepts an empty topic that exists, or asks for one that does not, which the brokers then may create by themselves.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._options: dict[str, str | int | float] = {
            "bootstrap.servers": address,
            "log_level": 0,
            "topic.metadata.propagation.max.ms": 0,
        }
        self._admin = AdminClient({**self._options, "allow.auto.create.topics": True})
        self._producer: confluent_kafka.Producer | None = None
        self._producer_timeout_s = 0.0

    def create_topic(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        if self._administered(timeout_s):
            new = NewTopic(topic, partitions, replication, config=dict(config))
            self._done(f"create the topic {topic}", self._admin.create_topics([new], request_timeout=timeout_s))
            self._until_partitions(topic, partitions, timeout_s)
            return
        reason = f"cannot create the topic {topic}: the brokers at {self._address} have no controller"
        if config:
            raise CommandFailed(f"{reason}, and topics that they create by themselves have no configuration")
        if self._partitions(topic, timeout_s):
            if count := self._count(topic, timeout_s):
                raise CommandFailed(f"{reason}, and the topic exists with {count} messages")
        else:
            self._listed(timeout_s, topic)
        found = self._partitions(topic, timeout_s)
        if found != partitions:
            exists = f"the topic exists with {found}" if found else "the topic does not exist"
            raise CommandFailed(f"{reason}, and {exists}, not with {partitions} partitions")

    def add_partitions(self, topic: str, total: int, timeout_s: float) -> None:
        what = f"add partitions to the topic {topic}"
        self._need_controller(what, timeout_s)
        self._producer = None  # it knows the old number
        self._done(what, self._admin.create_partitions([NewPartitions(topic, total)], request_timeout=timeout_s))
        self._until_partitions(topic, total, timeout_s)

    def delete_topics(self, topics: Sequence[str], timeout_s: float) -> None:
        """Returns when the brokers do not list them any more."""
        what = f"delete the topic {', '.join(topics)}"
        self._need_controller(what, timeout_s)
        self._producer = None  # it knows the old topics
        self._done(what, self._admin.delete_topics(list(topics), request_timeout=timeout_s))
        self._await(lambda: not self._listed(timeout_s).keys() & set(topics), timeout_s, f"cannot {what}")

    def delete_matching(self, prefix: str, suffix: str, timeout_s: float) -> None:
        """Deletes the topics whose names begin and end so, if the brokers have a controller."""
        found = sorted(name for name in self._listed(timeout_s) if name.startswith(prefix) and name.endswith(suffix))
        if found and self._administered(timeout_s):
            self.delete_topics(found, timeout_s)

    def produce(self, topic: str, messages: Iterable[Message], timeout_s: float) -> None:
        """Returns when all messages are acknowledged, in their order in each partition."""
        self._existing(topic, timeout_s)
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        producer = self._idempotent_producer(timeout_s)
        try:
            for message in messages:
                self._send(producer, topic, message, delivered)
        finally:
            left = producer.flush(timeout_s + 1)
        if failures or left:
            self._producer = None  # it may have failed for all messages, or still have some of these
        if failures:
            raise CommandFailed(f"cannot write to the topic {topic}: {failures[0].str()}")
        if left:
            raise CommandFailed(f"{left} messages to the topic {topic} were not acknowledged within {timeout_s:g} s")

    def _idempotent_producer(self, timeout_s: float) -> confluent_kafka.Producer:
        """The producer for messages with this timeout. It is kept, because a new one waits for its id for up to 1 s."""
        if self._producer is None or self._producer_timeout_s != timeout_s:
            self._producer_timeout_s = timeout_s
            self._producer = confluent_kafka.Producer(
                {
                    **self._options,
                    "enable.idempotence": True,
                    "message.max.bytes": _MESSAGE_BYTES_MAX,
                    "message.timeout.ms": max(1, int(timeout_s * 1000)),
                    "linger.ms": 1,
                }
            )
        return self._producer

    def consume(self, topic: str, at_least: int, timeout_s: float) -> list[Message]:
        """Returns all messages of a topic by partition and offset, as soon as there are `at_least`, or at the timeout.

        Messages of transactions that were aborted are not returned.
        """
        partitions = self._existing(topic, timeout_s)
        consumer = confluent_kafka.Consumer(
            {
                **self._options,
                "group.id": "testdrive",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,  # the end of a partition is known when a fetch returns nothing
            }
        )
        found: dict[int, list[Message]] = {partition: [] for partition in range(partitions)}
        ended: set[int] = set()
        deadline = time.monotonic() + timeout_s
        try:
            # Without it, the first fetch waits for up to a second until the consumer looks for the leaders.
            consumer.list_topics(topic, timeout_s)
            consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in found])
            while len(ended) < partitions or sum(map(len, found.values())) < at_least:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    if len(ended) < partitions:
                        raise CommandFailed(f"cannot read the topic {topic} to its end within {timeout_s:g} s")
                    break
                message = consumer.poll(left_s)
                if message is None:
                    continue
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    ended.discard(partition)
                    found[partition].append(_received(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                elif not error.retriable():
                    raise CommandFailed(f"cannot read the topic {topic}: {error.str()}")
        except KafkaException as error:
            raise self._failed(f"read the topic {topic}", error) from error
        finally:
            consumer.close()
        return [message for messages in found.values() for message in messages]

    def _send(
        self, producer: confluent_kafka.Producer, topic: str, message: Message, delivered: Callable[[Any, Any], None]
    ) -> None:
        partition = -1 if message.partition is None else message.partition
        while True:
            try:
                producer.produce(
                    topic,
                    message.value,
                    message.key,
                    partition,
                    on_delivery=delivered,
                    timestamp=message.timestamp_ms or 0,
                    headers=list(message.headers),
                )
            except BufferError:  # the queue of messages that are not acknowledged yet is full
                producer.poll(0.1)
                continue
            except KafkaException as error:
                raise self._failed(f"write to the topic {topic}", error) from error
            producer.poll(0)
            return

    def _listed(self, timeout_s: float, topic: str | None = None) -> dict[str, Any]:
        """The metadata of all topics, or of one, which brokers may create if it does not exist."""
        try:
            metadata = self._admin.list_topics(topic, timeout=timeout_s) if topic else self._metadata(timeout_s)
        except KafkaException as error:
            raise self._unreachable(error) from error
        return {name: found for name, found in metadata.topics.items() if found.error is None}

    def _metadata(self, timeout_s: float) -> Any:
        try:
            return self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def _administered(self, timeout_s: float) -> bool:
        """Whether the brokers name one of them as the controller. librdkafka's mock brokers name a missing one."""
        metadata = self._metadata(timeout_s)
        return metadata.controller_id in metadata.brokers

    def _need_controller(self, what: str, timeout_s: float) -> None:
        if not self._administered(timeout_s):
            raise CommandFailed(f"cannot {what}: the brokers at {self._address} have no controller")

    def _partitions(self, topic: str, timeout_s: float) -> int:
        found = self._listed(timeout_s).get(topic)
        return 0 if found is None else len(found.partitions)

    def _existing(self, topic: str, timeout_s: float) -> int:
        partitions = self._partitions(topic, timeout_s)
        if not partitions:
            raise CommandFailed(f"there is no topic {topic}: create it with $ kafka-create-topic")
        return partitions

    def _until_partitions(self, topic: str, partitions: int, timeout_s: float) -> None:
        def led() -> bool:
            found = self._listed(timeout_s).get(topic)
            return (
                found is not None
                and len(found.partitions) == partitions
                and all(partition.leader >= 0 for partition in found.partitions.values())
            )

        self._await(led, timeout_s, f"the topic {topic} has not {partitions} partitions with a leader")

    def _count(self, topic: str, timeout_s: float) -> int:
        return len(self.consume(topic, 0, timeout_s))

    def _await(self, condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise CommandFailed(f"{otherwise} after {timeout_s:g} s")
            time.sleep(_POLL_S)

    def _done(self, what: str, futures: Mapping[str, Future[Any]]) -> None:
        for future in futures.values():
            try:
                future.result()
            except KafkaException as error:
                raise self._failed(what, error) from error

    def _failed(self, what: str, error: KafkaException) -> CommandFailed:
        return CommandFailed(f"cannot {what}: {error.args[0].str()}")

    def _unreachable(self, error: KafkaException) -> CommandFailed:
        return CommandFailed(f"cannot reach Kafka at {self._address} (--kafka-addr): {error.args[0].str()}")


def _received(message: Any) -> Message:
    return Message(message.key(), message.value(), tuple(message.headers() or ()), message.partition())
