"""The consumer of one topic. librdkafka's blocking calls run in threads of the consumer's own.

A broker answers the requests of a connection one after another, and a fetch waits for messages there. Requests about
the topic therefore have a connection and a thread of their own, so that neither delays the other.

Offsets are assigned by the caller; nothing is committed to Kafka. Messages of aborted transactions are not seen, unless
the isolation is read_uncommitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any, Literal, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from catalog.objects.secrets import Secret
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.brokers import Brokers
from server.ingest.kafka.messages import Messages
from server.ingest.upstream import UpstreamError

REQUEST_S = 10.0
FIRST_REQUEST_S = 1.0  # of a request for metadata, which is repeated after twice the time
CONFIGURATION_S = 2.0  # for the topic's configuration, which some brokers do not answer
FETCH_WAIT_S = 0.5
POLL_S = 0.5  # without messages
POLLS = 5  # in this time, because `close` waits for the one in progress
MESSAGES_MAX = 50_000  # of one poll
QUEUE_WAIT_MS = 10  # until a full queue is filled again; librdkafka's default of 1 s is longer than reading the queue
QUEUE_KIB = 16 * 1024  # fetched by librdkafka and not yet polled; bounds the memory of a consumer
MESSAGE_BYTES_MAX = 64 << 20  # decompressed. A broker limits only the compressed size, which may be a thousandth
FETCH_BYTES = 1 << 20  # of all partitions in one answer of a broker, if they advance together
PARTITION_FETCH_BYTES_MIN = 128 * 1024  # of each of them
CONSUMED = 1_000  # messages of one call of librdkafka, which holds Python's lock while it creates their objects
_FIRST_MESSAGES = 100  # of the first poll, before the size of messages is known

Result = TypeVar("Result")

_OPTIONS = {
    "broker": "bootstrap.servers",
    "brokers": "bootstrap.servers",
    "security protocol": "security.protocol",
    "sasl mechanisms": "sasl.mechanisms",
    "sasl username": "sasl.username",
    "sasl password": "sasl.password",
    "ssl certificate authority": "ssl.ca.pem",
    "ssl certificate": "ssl.certificate.pem",
    "ssl key": "ssl.key.pem",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_IGNORED = frozenset(("progress topic", "progress topic replication factor", "type"))
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

_logger = logging.getLogger("librdkafka")
_logger.addHandler(logging.NullHandler())
_logger.propagate = False  # the errors that matter are raised


def configuration(connection: Mapping[str, str | Secret]) -> dict[str, str]:
    """The options of CREATE CONNECTION ... TO KAFKA as those of librdkafka. PgError for unknown or missing ones."""
    found: dict[str, str] = {}
    for name, value in connection.items():
        if name in _IGNORED:
            continue
        if name not in _OPTIONS:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f'unrecognized option "{name.upper()}" of a Kafka connection'
            )
        found[_OPTIONS[name]] = value.reveal() if isinstance(value, Secret) else value
    if not found.get("bootstrap.servers"):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "option BROKER of a Kafka connection is missing")
    if "security.protocol" not in found:
        has_sasl, has_tls = (any(name.startswith(prefix) for name in found) for prefix in ("sasl.", "ssl."))
        if has_sasl:
            found["security.protocol"] = "sasl_ssl"
        elif has_tls:
            found["security.protocol"] = "ssl"
    found["security.protocol"] = found.get("security.protocol", "plaintext").lower()
    if found["security.protocol"].startswith("sasl_") or "sasl.mechanisms" in found:
        found["sasl.mechanisms"] = found.get("sasl.mechanisms", "").upper()
        if found["sasl.mechanisms"] not in _MECHANISMS:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "option SASL MECHANISMS of a Kafka connection is missing or not supported",
                hint=f"Use one of {', '.join(_MECHANISMS)}.",
            )
    return found


@dataclass(frozen=True, slots=True)
class Poll:
    """Messages, perhaps none, and partitions that were read to their end.

    `ends`: by partition, the offset of the end. It can be after the last message: the marks that end a transaction, and
    the messages of aborted ones, have offsets.
    """

    messages: Messages
    ends: Mapping[int, int]

    def next_offsets(self) -> dict[int, int]:
        """The offset after everything that was read, by partition."""
        found = self.messages.next_offsets()
        return found | {partition: max(end, found.get(partition, 0)) for partition, end in self.ends.items()}


class TopicConsumer:
    """Reads one topic from assigned offsets. One task uses it; `close` ends it."""

    def __init__(
        self,
        connection: Mapping[str, str | Secret],
        topic: str,
        group: str,
        *,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        fetch_wait_s: float | None = None,
        evenly: bool = False,
    ) -> None:
        """PgError if options of the connection are invalid.

        `fetch_wait_s`: how long a broker waits for messages, FETCH_WAIT_S if None.
        `evenly`: fetches a small part of each partition in turn, so that all partitions advance together.
        """
        self.topic = topic
        self._is_closing = False
        wait_s = FETCH_WAIT_S if fetch_wait_s is None else fetch_wait_s
        self._messages_max = _FIRST_MESSAGES
        self._configuration = configuration(connection)
        self._options: dict[str, Any] = {
            **self._configuration,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": int(wait_s * 1_000),
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": QUEUE_KIB,
            "fetch.queue.backoff.ms": QUEUE_WAIT_MS,
            "reconnect.backoff.max.ms": 1_000,
        }
        self._brokers = Brokers(connection, self._configuration)
        self._request_brokers = Brokers(connection, self._configuration)
        self._evenly = evenly
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka")
        self._requests = ThreadPoolExecutor(1, thread_name_prefix="kafka-requests")
        self._consumer: confluent_kafka.Consumer | None = None  # until partitions are assigned
        try:  # requests about the topic are not those of an AdminClient, which could create the topic
            self._requester = confluent_kafka.Consumer(
                {**self._options, "error_cb": self._request_brokers.failed}, logger=_logger
            )
        except KafkaException as error:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f"Kafka connection is invalid: {error.args[0].str()}"
            ) from None

    async def partitions(self) -> int | None:
        """The number of partitions; None if there is no such topic."""
        found = await self._request(self._metadata)
        topic = found.topics.get(self.topic)
        if topic is None or (topic.error is not None and topic.error.code() in _GONE):
            return None
        if topic.error is not None:
            raise self._failed(topic.error)
        return len(topic.partitions) or None

    def _metadata(self) -> Any:
        """The brokers and the topic. Does not wait for REQUEST_S if a broker refuses the client."""
        wait_s, deadline = FIRST_REQUEST_S, monotonic() + REQUEST_S
        while True:
            try:
                return self._requester.list_topics(self.topic, max(min(wait_s, deadline - monotonic()), 0.01))
            except KafkaException:
                self._requester.poll(0)  # calls the error callback
                if self._is_closing or self._request_brokers.have_refused or monotonic() >= deadline:
                    raise
            wait_s *= 2

    async def watermarks(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The offsets of the first message and after the last one, by partition. Takes two requests for all."""
        partitions = list(partitions)
        if not partitions:
            return {}
        ends = (OFFSET_BEGINNING, OFFSET_END)
        low, high = await self._request(lambda: [self._offsets(partitions, at) for at in ends])
        return {partition: (low[partition], high[partition]) for partition in low}

    async def offset_at(self, partition: int, timestamp: int) -> int | None:
        """The offset of the first message at or after a time in milliseconds; None if there is none."""
        found = await self._request(lambda: self._offsets([partition], timestamp))
        return found[partition] if found[partition] >= 0 else None

    def _offsets(self, partitions: list[int], timestamp: int) -> dict[int, int]:
        """The offsets of the first messages at or after a time. OFFSET_BEGINNING and OFFSET_END are times, too."""
        places = [TopicPartition(self.topic, partition, timestamp) for partition in partitions]
        found = self._requester.offsets_for_times(places, REQUEST_S)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset for place in found}

    async def is_compacted(self) -> bool:
        """Whether the topic's messages are compacted; False if the brokers do not say."""
        return await self._request(self._is_compacted)

    def _is_compacted(self) -> bool:
        if not self._has_controller():
            return False
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            found = self._admin.describe_configs([resource], request_timeout=CONFIGURATION_S)[resource].result()
        except KafkaException:
            return False
        return "compact" in found["cleanup.policy"].value

    async def topic_id(self) -> str | None:
        """An id that distinguishes the topic from others that had its name; None if the brokers have no such ids."""
        return await self._request(self._topic_id)

    def _topic_id(self) -> str | None:
        if not self._has_controller():
            return None
        described = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_S)
        found = described[self.topic].result().topic_id
        return str(found) if found.get_most_significant_bits() or found.get_least_significant_bits() else None

    def _has_controller(self) -> bool:
        """Whether the brokers name a controller. librdkafka waits for one to administer; mock brokers have none."""
        cluster = self._metadata()
        return cluster.controller_id in cluster.brokers

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**self._configuration}, logger=_logger)

    async def assign(self, offsets: Mapping[int, int]) -> None:
        """Adds partitions, each of which is read from this offset on."""
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        await self._run(lambda: self._assign(places))

    def _assign(self, places: list[TopicPartition]) -> None:
        if self._consumer is None:
            options = {**self._options, "error_cb": self._brokers.failed}
            if self._evenly:
                share = FETCH_BYTES // max(len(places), 1)
                options["max.partition.fetch.bytes"] = max(share, PARTITION_FETCH_BYTES_MIN)
            self._consumer = confluent_kafka.Consumer(options, logger=_logger)
            # Without it, the first fetch waits for up to a second until the consumer looks for the leaders.
            self._consumer.list_topics(self.topic, REQUEST_S)
        self._consumer.incremental_assign(places)

    async def poll(self, bytes_max: int, *, with_headers: bool = False) -> Poll | None:
        """The next messages, about `bytes_max` bytes at most; None if there are none for now.

        UpstreamError if the brokers cannot be reached. PgError if messages are missing.
        """
        found = await self._run(lambda: self._poll(with_headers))
        if found is not None and len(found.messages):
            size = max(found.messages.nbytes // len(found.messages), 1)
            self._messages_max = int(min(max(bytes_max // (2 * size), 1), MESSAGES_MAX))
        return found

    def _poll(self, with_headers: bool) -> Poll | None:
        assert self._consumer is not None
        first = None
        for _ in range(POLLS):
            if first is None and not self._is_closing:
                first = self._consumer.poll(POLL_S / POLLS)
        if first is None:
            if self._brokers.down_since is not None:
                raise self._brokers.unreachable("no broker answers")
            return None
        self._brokers.reached()
        parts: list[Messages] = []
        ends: dict[int, int] = {}
        found, left = [first], self._messages_max
        while found:
            good = [message for message in found if self._is_message(message, ends)]
            parts.append(Messages.of(good, with_headers=with_headers))
            left -= len(found)
            found = self._consumer.consume(min(left, CONSUMED), 0) if left else []
        return Poll(Messages.joined(parts), ends)

    def _is_message(self, found: Any, ends: dict[int, int]) -> bool:
        """False for the end of a partition, which is added to `ends`.

        PgError or UpstreamError for an error, and for a message of more than MESSAGE_BYTES_MAX.
        """
        error = found.error()
        if error is None:
            if len(found) > MESSAGE_BYTES_MAX:
                raise self._too_long(found)
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            ends[found.partition()] = found.offset()
            return False
        if error.code() in _OUT_OF_RANGE:
            raise missing(self.topic, found.partition())
        if error.code() in _GONE:
            raise deleted(self.topic)
        raise self._failed(error)

    async def close(self) -> None:
        """Waits for the poll in progress. May be called twice."""
        loop = asyncio.get_running_loop()
        self._is_closing = True
        try:
            await loop.run_in_executor(self._thread, self._end_consumer)
        except RuntimeError:  # closed already
            return
        self._thread.shutdown(wait=False)
        self._requests.submit(self._requester.close)  # after the request in progress
        self._requests.shutdown(wait=False)

    def _end_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    async def _run(self, work: Callable[[], Result]) -> Result:
        """Runs a blocking call of the consumer. UpstreamError if it fails."""
        return await self._called(self._thread, self._brokers, work)

    async def _request(self, work: Callable[[], Result]) -> Result:
        """Runs a blocking call that only asks about the topic. UpstreamError if it fails."""
        return await self._called(self._requests, self._request_brokers, work)

    async def _called(self, thread: ThreadPoolExecutor, brokers: Brokers, work: Callable[[], Result]) -> Result:
        def called() -> Result:
            try:
                result = work()
            except KafkaException as error:
                if error.args[0].code() in _UNREACHABLE:
                    raise brokers.unreachable(error.args[0].str()) from None
                raise self._failed(error.args[0]) from None
            return result

        return await asyncio.get_running_loop().run_in_executor(thread, called)

    def _too_long(self, found: Any) -> PgError:
        return PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f'message at offset {found.offset()} of partition {found.partition()} of topic "{self.topic}" is too long',
            detail=f"It has {len(found)} bytes, the limit is {MESSAGE_BYTES_MAX}.",
            hint="Drop the source, and create it with a START OFFSET after the message.",
        )

    def _failed(self, error: KafkaError) -> UpstreamError:
        return UpstreamError(f'could not read topic "{self.topic}": {error.str()}')


def missing(topic: str, partition: int | None, detail: str | None = None) -> PgError:
    """The error for messages that were removed from the topic before they were read."""
    return PgError(
        SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
        f'topic "{topic}" no longer has the messages of partition {partition} that the source would read next',
        detail=detail,
        hint="The topic was created again, or its retention is too short. Drop the source and create it again.",
    )


def created_again(topic: str) -> PgError:
    """The error for a topic that is not the one whose offsets are stored."""
    return PgError(
        SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
        f'topic "{topic}" was deleted and created again',
        hint="Drop the source and create it again.",
    )


def deleted(topic: str) -> PgError:
    """The error for a topic that does not exist."""
    return PgError(
        SqlState.UNDEFINED_OBJECT,
        f'topic "{topic}" does not exist',
        hint="Create the topic, or drop the source if the topic was deleted.",
    )
