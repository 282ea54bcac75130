"""ENVELOPE UPSERT and DEBEZIUM: transactions with the changes of one or more timestamps, and the frontier after them.

    messages of committed transactions = changes at times before the frontier

The frontier is a record in the progress topic. Each sink has its own transactional id. Starting a producer fences its
predecessor and aborts the open transaction, so the frontier that is then read cannot change any more.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Written
from server.egress.kafka import headers, partitioning
from server.egress.kafka.headers import headers_of
from server.egress.kafka.partitioning import PartitionExpression
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.progress import progress_topic, read_committed, record_key, record_value
from server.egress.kafka.schemas import key_form, value_form
from server.egress.kafka.topic import Topic, WrittenTopic
from server.egress.net_changes import Pairs
from server.egress.row_changes import RowChanges
from server.egress.row_messages import Encoder, either
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.messages import Headers
from server.spark import Runner

TRANSACTIONAL_ID_PREFIX = "tidewire-"


class RowTopic:
    """Writes the changes of a collection's rows to a topic, exactly once."""

    keeps_frontier = True
    target: str | None = None  # the id of the topic is in the progress topic

    def __init__(
        self,
        definition: SinkDefinition,
        written: Written,
        runner: Runner | None = None,
        scratch: Path | None = None,
    ) -> None:
        """`runner` evaluates PARTITION BY. It is not needed for `forget`. `scratch`: the directory for large rows."""
        assert definition.format is not None
        self._definition = definition
        self._envelope = definition.format.envelope
        self._key = definition.key_positions
        self._changes = RowChanges(definition, written, self._send_pairs, scratch)
        self._topic = Topic.of(definition.options)
        self._written = written
        self._frontier = Timestamp(0)
        self._producer: TopicProducer | None = None
        self._encoder: Encoder | None = None
        self._written_topic: WrittenTopic | None = None
        self._partitioning: PartitionExpression | None = None
        if runner is not None and partitioning.OPTION in definition.options:
            self._partitioning = PartitionExpression(definition, runner)
        self._headers = headers.position(definition)

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Timestamp | None:
        definition = self._definition
        await self._start()
        last = await read_committed(definition.connection, definition.identity)
        frontier = None if last is None else last.frontier
        if (frontier or 0) < (committed or 0):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'sink "{definition.name}" has written to topic "{self._topic.name}" up to {committed}, but its '
                f'frontier in topic "{progress_topic(definition.connection).name}" is '
                + ("missing" if frontier is None else str(frontier)),
                detail="The progress topic was modified, or the connection has a different one now.",
                hint="Drop the sink, delete the topic, and create the sink again.",
            )
        is_new = frontier is None
        self._written_topic = topic = await WrittenTopic.open(self._topic, definition.connection, is_new=is_new)
        if last is not None:
            topic.check(last.topic_id)
        forms = await key_form(definition), await value_form(definition)
        self._encoder = Encoder(self._envelope, self._key, *forms)
        self._frontier = frontier or Timestamp(0)
        return frontier

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        await self._connected.begin()
        if rows is not None:
            await self._changes.snapshot(rows, as_of)
        await self._commit(Timestamp(as_of + 1))

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        if upper > self._frontier:
            await self._found.check_sometimes()
            await self._connected.begin()
            if changes.num_rows:
                await self._changes.send(changes)
            await self._commit(upper)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
        if self._written_topic is not None:
            await self._written_topic.close()
            self._written_topic = None

    async def forget(self) -> None:
        """Deletes the frontier."""
        connection = self._definition.connection
        if await progress_topic(connection).partition_count(connection) is None:
            return
        await self._start()
        await self._connected.begin()
        await self._record(None)
        await self._connected.commit()

    async def _start(self) -> None:
        definition = self._definition
        prefix = definition.options.get("transactional id prefix", TRANSACTIONAL_ID_PREFIX)
        self._producer = TopicProducer(
            definition.connection,
            self._topic.name,
            compression=self._topic.compression,
            transactional_id=prefix + definition.identity,
        )
        await self._producer.start()

    @property
    def _connected(self) -> TopicProducer:
        assert self._producer is not None
        return self._producer

    @property
    def _found(self) -> WrittenTopic:
        assert self._written_topic is not None
        return self._written_topic

    async def _send_pairs(self, rows: pa.Table, pairs: Pairs) -> None:
        encoder, count = self._encoder, self._found.partitions
        assert encoder is not None
        chosen: NDArray[np.int64] | None = None
        if self._partitioning is not None:
            taken = await asyncio.to_thread(_taken, rows, pairs)
            chosen = await self._partitioning.partitions(taken, count)

        def encoded() -> tuple[list[bytes | None], list[bytes] | None, list[int] | None, list[Headers] | None, int]:
            partitions = encoder.partitions(rows, pairs, count) if chosen is None else chosen
            own = None
            if self._headers is not None:
                own = headers_of(rows.column(self._headers).take(pa.array(either(pairs))))
            keys, values = encoder.keys(rows, pairs), encoder.values(rows, pairs)
            return (
                values.to_pylist(),
                None if keys is None else keys.to_pylist(),
                None if partitions is None else partitions.tolist(),
                own,
                _size(values) + (0 if keys is None else _size(keys)),
            )

        values, keys, partitions, own, size = await asyncio.to_thread(encoded)
        await self._connected.send(values, keys, partitions, own)
        self._written.messages += len(values)
        self._written.bytes += size

    async def _commit(self, frontier: Timestamp) -> None:
        await self._record(record_value(frontier, self._found.id))
        await self._connected.commit()
        self._frontier = frontier

    async def _record(self, value: bytes | None) -> None:
        """Writes the sink's record to the progress topic."""
        definition = self._definition
        topic = progress_topic(definition.connection).name
        await self._connected.send([value], [record_key(definition.identity)], topic=topic)


def _taken(rows: pa.Table, pairs: Pairs) -> pa.Table:
    """The row of each message, with columns c0, c1, ..."""
    return rows.take(pa.array(either(pairs))).rename_columns([f"c{i}" for i in range(rows.num_columns)])


def _size(messages: pa.BinaryArray) -> int:
    """The sum of the lengths."""
    return int(pc.sum(pc.binary_length(messages)).as_py() or 0)
