"""The Kafka producer of a sink. librdkafka's blocking calls run in the producer's own thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from time import monotonic
from typing import Any, TypeVar

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.brokers import Brokers
from server.ingest.kafka.consumer import configuration
from server.ingest.kafka.messages import Headers
from server.ingest.source_definition import Options
from server.ingest.upstream import UpstreamError

TRANSACTION_S = 600.0  # transaction timeout; brokers allow at most 15 minutes by default
START_S = 30.0  # how long the transaction coordinator may take to answer before the sink stalls
DOWN_S = 10.0  # how long all brokers may be unreachable before the sink stalls
SERVE_S = 0.5  # timeout of a blocking call, and so the time that `close` waits for it
ABORT_S = 5.0
REPORT_S = 0.1  # how long to wait for the delivery report of the message that made a call fail
METADATA_S = 10.0  # between two requests for metadata, which make messages of a deleted topic fail
GONE_S = 30.0  # how long a topic may be unknown to the brokers before its messages fail
QUEUE_KIB = 64 * 1024  # unacknowledged messages; bounds the memory of a producer
MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # the topic and the broker usually have lower limits

Result = TypeVar("Result")

_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MSG_TIMED_OUT)

log = structlog.get_logger()
_logger = logging.getLogger("librdkafka")


class Ended(Exception):
    """`close` was called during a call. Nobody sees this exception, because the caller was cancelled."""


class TopicProducer:
    """Writes to a topic. It is used by a single task, and must be closed.

    Its methods raise UpstreamError if no broker can be reached, or if another producer with the same transactional id
    was started, and PgError if the brokers refuse messages.
    """

    def __init__(
        self, connection: Options, topic: str, *, compression: str = "lz4", transactional_id: str | None = None
    ) -> None:
        """With `transactional_id`, messages are sent in transactions. PgError if the options are invalid."""
        self.topic = topic
        self._refused: tuple[KafkaError, str] | None = None  # the first error of a message, and its topic
        self._in_transaction = False
        self._begun = 0.0  # when the transaction began, by the monotonic clock
        self._ending = threading.Event()
        known = configuration(connection)
        self._brokers = Brokers(connection, known)
        options: dict[str, Any] = {
            **known,
            "enable.idempotence": True,
            "compression.type": compression,
            "partitioner": "murmur2_random",  # as Kafka's Java clients choose the partition of a key
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "reconnect.backoff.max.ms": 1_000,
            "delivery.report.only.error": True,
            # A producer would otherwise create a deleted topic again, without its earlier messages.
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": int(METADATA_S * 1_000),
            "topic.metadata.propagation.max.ms": int(GONE_S * 1_000),
        }
        if transactional_id is not None:
            options |= {"transactional.id": transactional_id, "transaction.timeout.ms": int(TRANSACTION_S * 1_000)}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-sink")
        callbacks = {"error_cb": self._brokers.failed, "on_delivery": self._delivered}
        try:
            self._producer: Any = confluent_kafka.Producer({**options, **callbacks}, logger=_logger)
        except KafkaException as error:
            self._thread.shutdown()
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f"Kafka connection is invalid: {error.args[0].str()}"
            ) from None

    async def start(self) -> None:
        """Fences earlier producers with the same transactional id, and waits until their transactions have ended."""
        await self._run(lambda: self._until_done(self._producer.init_transactions, START_S))

    async def begin(self) -> None:
        """Begins a transaction."""
        await self._run(self._begin)

    async def send(
        self,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None = None,
        partitions: Iterable[int] | None = None,
        headers: Sequence[Headers] | None = None,
        *,
        topic: str | None = None,
    ) -> None:
        """Sends messages. `values` is iterated in the producer's thread. `topic`: instead of the producer's own.

        `partitions` may have more items than `values` if there are no keys and no headers.
        """
        await self._run(lambda: self._send(topic or self.topic, values, keys, partitions, headers))

    async def commit(self) -> None:
        """Commits the transaction. Returns when all of its messages are durable."""
        await self._run(self._commit)

    async def flush(self) -> None:
        """Returns when all messages are durable."""
        await self._run(self._flush)

    async def close(self) -> None:
        """Waits for the call in progress, and aborts an open transaction. May be called twice."""
        self._ending.set()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        except RuntimeError:  # closed already
            return
        self._thread.shutdown(wait=False)

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._in_transaction, self._begun = True, monotonic()

    def _commit(self) -> None:
        self._until_done(self._producer.commit_transaction, TRANSACTION_S)
        self._in_transaction = False

    def _flush(self) -> None:
        begun = monotonic()
        left = len(self._producer)
        while remaining := self._producer.flush(SERVE_S):
            if remaining < left:  # brokers acknowledge messages
                left = remaining
                self._brokers.reached()
            self._check(begun, TRANSACTION_S)
        self._raise_refused()
        self._brokers.reached()

    def _send(
        self,
        topic: str,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None,
        partitions: Iterable[int] | None,
        headers: Sequence[Headers] | None,
    ) -> None:
        produce, begun = self._producer.produce, monotonic()
        rows: Iterable[tuple[bytes | None, bytes | None, int, Headers | None]]
        if keys is None and headers is None:  # the values may be encoded meanwhile
            rows = ((value, None, at, None) for value, at in zip(values, partitions or repeat(-1), strict=False))
        else:
            values = list(values)
            rows = zip(
                values,
                keys or repeat(None, len(values)),
                partitions or repeat(-1, len(values)),
                headers or repeat(None, len(values)),
                strict=True,
            )
        for value, key, partition, own in rows:
            has_waited = False
            while True:
                try:
                    if own:
                        produce(topic, value, key, partition, headers=list(own))
                    else:
                        produce(topic, value, key, partition)
                    break
                except BufferError:
                    has_waited = True
                    self._producer.poll(SERVE_S)
                    self._check(begun, TRANSACTION_S)
            if has_waited:  # brokers have acknowledged messages
                self._brokers.reached()
        self._producer.poll(0)
        self._raise_refused()

    def _until_done(self, call: Callable[[float], None], limit_s: float) -> None:
        """Repeats a call until it succeeds. A call that timed out can be resumed."""
        begun = monotonic()
        while True:
            try:
                call(SERVE_S)
                self._brokers.reached()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    self._ending.wait(SERVE_S / 10)
                self._producer.poll(0)  # calls the error callback
            self._check(begun, limit_s)

    def _check(self, begun: float, limit_s: float) -> None:
        """Raises if a call should give up. `begun`: its start. `limit_s`: its timeout while brokers can be reached."""
        if self._ending.is_set():
            raise Ended
        self._raise_refused()
        deadline = begun + limit_s
        if self._brokers.down_since is not None:
            deadline = max(begun, self._brokers.down_since) + DOWN_S
        if monotonic() > deadline:
            raise self._brokers.unreachable("timeout")

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._error(*self._refused)

    def _close(self) -> None:
        if self._in_transaction:
            try:
                self._producer.abort_transaction(ABORT_S)
            except KafkaException as error:  # the next producer with the same transactional id aborts it
                log.info("Kafka transaction not aborted", topic=self.topic, error=error.args[0].str())
        self._producer.purge()
        self._producer = None

    async def _run(self, work: Callable[[], Result]) -> Result:
        def served() -> Result:
            try:
                return work()
            except KafkaException as error:
                cause = self._cause(error.args[0])
                raise self._error(*(self._refused or (cause, self.topic))) from None

        return await asyncio.get_running_loop().run_in_executor(self._thread, served)

    def _cause(self, error: KafkaError) -> KafkaError:
        """The cause of an error. If there is a delivery report, it has the cause, and `_delivered` receives it."""
        try:
            self._producer.poll(REPORT_S)
        except KafkaException as fatal:  # calls after a fatal error fail without its cause, which is raised once
            (error,) = fatal.args
        return error

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        """The delivery report of a message that was not delivered."""
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._refused = self._refused or (error, message.topic())

    def _error(self, error: KafkaError, topic: str) -> PgError | UpstreamError:
        code, text = error.code(), error.str()
        if code in _UNREACHABLE:
            return self._brokers.unreachable(text)
        if code in _FENCED and self._in_transaction and monotonic() > self._begun + TRANSACTION_S:
            return PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'transaction timeout: writing to topic "{self.topic}" took more than {TRANSACTION_S:g} seconds',
                hint="The initial rows are one transaction. To omit them, create the sink with SNAPSHOT = false.",
            )
        if code in _FENCED:
            return UpstreamError(
                f'another server writes to topic "{self.topic}" for the same sink',
                "Stop one of the servers, or drop the sink on one of them.",
            )
        if code in _GONE:
            return PgError(
                SqlState.UNDEFINED_OBJECT,
                f'topic "{topic}" does not exist',
                hint="Drop the sink and create it again.",
            )
        if code in _DENIED:
            return PgError(
                SqlState.INSUFFICIENT_PRIVILEGE,
                f'permission denied for topic "{topic}": {text}',
                hint="The user needs to write the topic and the progress topic, and to use the transactional id.",
            )
        if code in _TOO_LARGE:
            return PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'message too large for topic "{topic}"',
                hint="Increase max.message.bytes of the topic.",
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f"the brokers do not allow a transaction timeout of {TRANSACTION_S:g} seconds",
                hint="Increase transaction.max.timeout.ms of the brokers.",
            )
        return UpstreamError(f'could not write to topic "{topic}": {text}')
