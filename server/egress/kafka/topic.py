"""The topic of a sink: its options, its creation, and whether it is still the one that the sink has written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.consumer import REQUEST_S, TopicConsumer, configuration
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Options
from server.ingest.upstream import UpstreamError

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_INT_MAX = 2**15 - 1
CHECK_S = 10.0  # between two requests whether the topic is still the one that the sink has written


@dataclass(frozen=True)
class Topic:
    """A topic, and the settings with which it is created if it does not exist. -1: the default of the brokers."""

    name: str
    partitions: int = -1
    replicas: int = -1
    compression: str = "lz4"
    configuration: Mapping[str, str] | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Topic:
        """The topic of a sink with these options. PgError if they are invalid."""
        values = OptionValues(options)
        compression = options.get("compression type", "lz4").lower()
        if compression not in _COMPRESSIONS:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f'invalid value for option COMPRESSION TYPE: "{compression}"',
                hint=f"Use one of {', '.join(_COMPRESSIONS)}.",
            )
        return cls(
            options["topic"],
            values.integer("topic partition count", -1, greatest=_INT_MAX),
            values.integer("topic replication factor", -1, greatest=_INT_MAX),
            compression,
        )

    async def partition_count(self, connection: Options) -> int | None:
        """The number of partitions; None if the topic does not exist. UpstreamError if no broker answers."""
        consumer = TopicConsumer(connection, self.name, "tidewire-sinks")
        try:
            return await consumer.partitions()
        finally:
            await consumer.close()

    async def create(self, connection: Options) -> None:
        """Creates the topic unless it exists. PgError if the brokers refuse the request."""
        await asyncio.to_thread(self._create, connection)

    def _create(self, connection: Options) -> None:
        options = configuration(connection)
        topic = NewTopic(self.name, self.partitions, self.replicas, config=dict(self.configuration or {}))
        admin = AdminClient({**options})  # must outlive the request
        try:
            created = admin.create_topics([topic], operation_timeout=REQUEST_S, request_timeout=REQUEST_S)
            created[self.name].result()
        except KafkaException as error:
            code, text = error.args[0].code(), error.args[0].str()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                raise UpstreamError(f'could not create topic "{self.name}": {text}') from None
            denied = code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            raise PgError(
                SqlState.INSUFFICIENT_PRIVILEGE if denied else SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'could not create topic "{self.name}": {text}',
                hint="Create the topic, or allow the user of the connection to create it.",
            ) from None


class WrittenTopic:
    """The topic of a connected sink. Must be closed.

    `partitions`: their number. `id`: as `TopicConsumer.topic_id`.
    """

    def __init__(self, consumer: TopicConsumer, partitions: int, id: str | None) -> None:
        self._consumer = consumer
        self.partitions = partitions
        self.id = id
        self._checked = monotonic()

    @classmethod
    async def open(cls, topic: Topic, connection: Options, *, is_new: bool) -> WrittenTopic:
        """Creates the topic if `is_new`; else PgError if it does not exist. UpstreamError if no broker answers."""
        consumer = TopicConsumer(connection, topic.name, "tidewire-sinks")
        try:
            count = await consumer.partitions()
            if count is None and is_new:
                await topic.create(connection)
                count = await consumer.partitions()
            if count is None:
                raise _missing(topic.name)
            return cls(consumer, count, await consumer.topic_id())
        except BaseException:
            await consumer.close()
            raise

    def check(self, id: str | None) -> None:
        """PgError if the sink has written a topic with another id. None: it is not known."""
        if None not in (id, self.id) and id != self.id:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'topic "{self._consumer.topic}" was deleted and created again',
                detail="It lacks the messages that the sink has written before.",
                hint="Drop the sink and create it again.",
            )

    async def check_sometimes(self) -> None:
        """Once in CHECK_S, PgError if the topic does not exist, or has been created again."""
        if monotonic() >= self._checked + CHECK_S:
            if await self._consumer.partitions() is None:
                raise _missing(self._consumer.topic)
            found = await self._consumer.topic_id()
            self._checked = monotonic()
            self.check(found)

    async def close(self) -> None:
        await self._consumer.close()


def _missing(topic: str) -> PgError:
    return PgError(
        SqlState.UNDEFINED_OBJECT, f'topic "{topic}" does not exist', hint="Drop the sink and create it again."
    )
