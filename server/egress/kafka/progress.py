"""The progress topic, which stores the frontiers of sinks. A transaction writes changes and the frontier after them.

The key of a record identifies the sink, and its value is `{"frontier":[1700000000000],"topic":"id"}`. A sink's frontier
is that of its last committed record. `topic` is the id of the topic that was written, if the brokers have such ids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import monotonic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import Timestamp
from catalog.objects.secrets import Secret
from protocol.pgwire.errors import PgError, SqlState
from server.egress.kafka.topic import Topic
from server.ingest.kafka.consumer import TopicConsumer
from server.ingest.source_definition import Options
from server.ingest.upstream import UpstreamError

DEFAULT_TOPIC = "_tidewire-progress"
READ_BYTES = 1024 * 1024
FETCH_WAIT_S = 0.05  # a fetch of only control records returns no messages, so the broker waits this long
WINDOW, WINDOW_GROWTH = 10_000, 8  # offsets that are read first, and by how much more each time
WAIT_S = 60.0  # how long to wait for open transactions of other sinks

_CONFIGURATION = {"cleanup.policy": "compact", "segment.bytes": str(128 * 1024 * 1024)}


def progress_topic(connection: Options) -> Topic:
    """The progress topic of a connection."""
    name = connection.get("progress topic", DEFAULT_TOPIC)
    assert not isinstance(name, Secret)
    return Topic(name, 1, configuration=_CONFIGURATION)


def record_key(identity: str) -> bytes:
    """The key of a sink's records."""
    return b"tidewire-sink-" + identity.encode()


@dataclass(frozen=True, slots=True)
class Committed:
    """The last committed record of a sink. `topic_id`: of the topic that it has written, None if it is not known."""

    frontier: Timestamp
    topic_id: str | None


def record_value(frontier: Timestamp, topic_id: str | None) -> bytes:
    """The value of a record."""
    topic = {} if topic_id is None else {"topic": topic_id}
    return json.dumps({"frontier": [frontier], **topic}, separators=(",", ":")).encode()


async def read_committed(connection: Options, identity: str) -> Committed | None:
    """The last record of a sink; None if it has no frontier. Creates the topic if it does not exist.

    The sink's producer must have been started, so that the sink has no open transaction. A consumer with
    read_committed does not see past the first open transaction of any sink. The high watermark is therefore requested
    with read_uncommitted, and the topic is read up to it.
    """
    topic = progress_topic(connection)
    partitions = await topic.partition_count(connection)
    if partitions is None:
        await topic.create(connection)
        return None
    if partitions != 1:
        raise PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            f'progress topic "{topic.name}" has {partitions} partitions instead of one',
            hint="Set PROGRESS TOPIC of the connection to another topic.",
        )
    everything = TopicConsumer(connection, topic.name, "tidewire-sinks", isolation="read_uncommitted")
    try:
        ((begin, end),) = (await everything.watermarks([0])).values()
    finally:
        await everything.close()
    window, lower = WINDOW, end
    while lower > begin:  # backwards: most sinks have written recently, and brokers do not compact the last segment
        upper, lower, window = lower, max(begin, lower - window), window * WINDOW_GROWTH
        consumer = TopicConsumer(connection, topic.name, "tidewire-sinks", fetch_wait_s=FETCH_WAIT_S)
        try:
            is_found, committed = await _last(consumer, lower, upper, record_key(identity))
        finally:
            await consumer.close()
        if is_found:
            return committed
    return None


async def _last(consumer: TopicConsumer, begin: int, end: int, key: bytes) -> tuple[bool, Committed | None]:
    """Whether a committed record at the offsets [begin, end) has this key, and the last such record.

    None: it has no frontier, because the sink was dropped.
    """
    position, is_found, found, deadline = begin, False, None, monotonic() + WAIT_S
    if position < end:
        await consumer.assign({0: begin})
    while position < end:
        poll = await consumer.poll(READ_BYTES)
        reached = poll.next_offsets().get(0, 0) if poll is not None else 0
        if poll is None or reached <= position:
            if monotonic() > deadline:
                raise UpstreamError(
                    f'progress topic "{consumer.topic}" has an open transaction',
                    "It ends when another sink commits it, or when the brokers abort it after its timeout.",
                )
            continue
        is_own = np.asarray(pc.equal(poll.messages.keys, pa.scalar(key, pa.binary())).fill_null(False))
        own = np.flatnonzero(is_own & (poll.messages.offsets < end))  # later ones were read before
        if len(own):
            is_found, found = True, poll.messages.values[int(own[-1])].as_py()
        position, deadline = reached, monotonic() + WAIT_S
    return is_found, None if found is None else _committed(consumer.topic, found)


def _committed(topic: str, value: bytes) -> Committed:
    try:
        record = json.loads(value)
        (frontier,) = record["frontier"]
        return Committed(Timestamp(int(frontier)), record.get("topic"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PgError(
            SqlState.DATA_CORRUPTED,
            f'progress topic "{topic}" contains a record that was not written by a sink',
            hint="Set PROGRESS TOPIC of the connection to a topic that only sinks write to.",
        ) from None
