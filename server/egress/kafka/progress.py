"""The topic with the frontiers of sinks, which a transaction writes with the changes before the frontier.

A record's key names the sink, and its value is `{"frontier":[1700000000000]}`. The last committed record counts.
"""

from __future__ import annotations

import json
from time import monotonic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects import Timestamp
from catalog.source_definition import Secret
from protocol.pgwire.errors import PgError, SqlState
from server.egress.kafka.topic import Topic
from server.ingest.kafka.consumer import TopicConsumer
from server.ingest.source_kind import Options
from server.ingest.upstream import UpstreamError

DEFAULT_TOPIC = "_tidewire-progress"
READ_BYTES = 1024 * 1024
FETCH_WAIT_S = 0.05  # the marks of transactions at the end of the topic are no messages, so the reader waits for these
WAIT_S = 60.0  # for open transactions of other sinks before the end of the topic

_CONFIGURATION = {"cleanup.policy": "compact", "segment.bytes": str(128 * 1024 * 1024)}


def progress_topic(connection: Options) -> Topic:
    """The topic that the options of a connection name."""
    name = connection.get("progress topic", DEFAULT_TOPIC)
    assert not isinstance(name, Secret)
    return Topic(name, 1, configuration=_CONFIGURATION)


def record_key(identity: str) -> bytes:
    """The key of a sink's records."""
    return b"tidewire-sink-" + identity.encode()


def record_value(frontier: Timestamp) -> bytes:
    """The value of a record."""
    return b'{"frontier":[%d]}' % frontier


async def read_frontier(connection: Options, identity: str) -> Timestamp | None:
    """The committed frontier of a sink; None if it has none. Creates the topic if it does not exist.

    The producer of the sink was started before: then the sink has no open transaction. Transactions of other sinks
    hide committed records that follow them, so the end of the topic is that of all messages, and is waited for.
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
            hint="Set another PROGRESS TOPIC of the connection.",
        )
    everything = TopicConsumer(connection, topic.name, "tidewire-sinks", isolation="read_uncommitted")
    try:
        begin, end = await everything.watermarks(0)
    finally:
        await everything.close()
    consumer = TopicConsumer(connection, topic.name, "tidewire-sinks", fetch_wait_s=FETCH_WAIT_S)
    try:
        return await _last(consumer, begin, end, record_key(identity))
    finally:
        await consumer.close()


async def _last(consumer: TopicConsumer, begin: int, end: int, key: bytes) -> Timestamp | None:
    """The frontier in the last committed record with a key, before an offset."""
    position, found, deadline = begin, None, monotonic() + WAIT_S
    if position < end:
        await consumer.assign({0: begin})
    while position < end:
        poll = await consumer.poll(READ_BYTES)
        reached = poll.next_offsets().get(0, 0) if poll is not None else 0
        if poll is None or reached <= position:
            if monotonic() > deadline:
                raise UpstreamError(
                    f'progress topic "{consumer.topic}" has an open transaction, which hides what follows it',
                    "Wait until the brokers abort the transaction.",
                )
            continue
        own = np.flatnonzero(pc.equal(poll.messages.keys, pa.scalar(key, pa.binary())).fill_null(False))
        if len(own):
            found = poll.messages.values[int(own[-1])].as_py()
        position, deadline = reached, monotonic() + WAIT_S
    return None if found is None else _frontier(consumer.topic, found)


def _frontier(topic: str, value: bytes) -> Timestamp:
    try:
        (frontier,) = json.loads(value)["frontier"]
        return Timestamp(int(frontier))
    except (ValueError, KeyError, TypeError):
        raise PgError(
            SqlState.DATA_CORRUPTED,
            f'progress topic "{topic}" has a record that is not that of a sink',
            hint="Set another PROGRESS TOPIC of the connection, which only sinks write.",
        ) from None
