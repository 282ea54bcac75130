"""ENVELOPE UPSERT and DEBEZIUM: transactions with the changes of one or more timestamps, and the frontier after them.

    messages of committed transactions = changes at times before the frontier

The frontier is a record in the progress topic. Each sink has its own transactional id. Starting a producer fences its
predecessor and aborts the open transaction, so the frontier that is then read cannot change any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.objects import Timestamp
from catalog.source_definition import Envelope
from protocol.cdcv2.messages import TIME, TIME_FIELD
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream.consolidation import consolidated
from server.egress.downstream import Written
from server.egress.kafka import headers, partitioning
from server.egress.kafka.headers import headers_of
from server.egress.kafka.messages import Encoder, either
from server.egress.kafka.partitioning import PartitionExpression
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.progress import progress_topic, read_frontier, record_key, record_value
from server.egress.kafka.schemas import key_form, value_form
from server.egress.kafka.topic import Topic, ensure
from server.egress.key_errors import key_error
from server.egress.net_changes import KeyViolation, Pairs, check_unique, paired
from server.egress.parts import PART_BYTES, PART_ROWS, parts
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.messages import Headers
from server.spark import Runner

FEW_ROWS = 1_000  # more changes than these are paired in a thread
COPIES_MAX = 1_000_000  # of rows that are in memory at a time
TRANSACTIONAL_ID_PREFIX = "tidewire-"


class RowTopic:
    """Writes the changes of a collection's rows to a topic, exactly once."""

    keeps_frontier = True

    def __init__(
        self,
        definition: SinkDefinition,
        written: Written,
        runner: Runner | None = None,
        scratch: Path | None = None,
    ) -> None:
        """`runner` evaluates PARTITION BY. It is not needed for `forget`. `scratch`: the directory for large rows."""
        self._scratch = scratch
        assert definition.format is not None
        self._definition = definition
        self._envelope = definition.format.envelope
        self._key = definition.key_positions
        self._is_unique = self._key is not None and "key not enforced" not in definition.options
        self._topic = Topic.of(definition.options)
        self._written = written
        self._frontier = Timestamp(0)
        self._producer: TopicProducer | None = None
        self._encoder: Encoder | None = None
        self._partitions = 1
        self._partitioning: PartitionExpression | None = None
        if runner is not None and partitioning.OPTION in definition.options:
            self._partitioning = PartitionExpression(definition, runner)
        self._headers = headers.position(definition)

    async def open(self, committed: Timestamp | None) -> Timestamp | None:
        definition = self._definition
        await self._start()
        frontier = await read_frontier(definition.connection, definition.identity)
        if (frontier or 0) < (committed or 0):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'sink "{definition.name}" has written to topic "{self._topic.name}" up to {committed}, but its '
                f'frontier in topic "{progress_topic(definition.connection).name}" is '
                + ("missing" if frontier is None else str(frontier)),
                detail="The progress topic was modified, or the connection has a different one now.",
                hint="Drop the sink, delete the topic, and create the sink again.",
            )
        self._partitions = await ensure(self._topic, definition.connection, is_new=frontier is None)
        forms = await key_form(definition), await value_form(definition)
        self._encoder = Encoder(self._envelope, self._key, *forms)
        self._frontier = frontier or Timestamp(0)
        return frontier

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        await self._connected.begin()
        if rows is not None:
            key = None if self._key is None else [f"c{position}" for position in self._key]
            async with aclosing(consolidated([rows], self._scratch, by=key)) as chunks:
                async for changes in chunks:
                    if self._is_unique:
                        await self._check_unique(changes)
                    for part in parts(changes):
                        times = pa.array(np.full(part.num_rows, as_of, np.int64))
                        await self._send(part.add_column(part.num_columns - 1, TIME_FIELD, times))
        await self._commit(Timestamp(as_of + 1))

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        if upper > self._frontier:
            await self._connected.begin()
            if changes.num_rows:
                await self._send(changes)
            await self._commit(upper)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None

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

    async def _check_unique(self, changes: pa.Table) -> None:
        assert self._key is not None
        try:
            several = pc.greater(changes[updates.DIFF], 1)
            if pc.any(several).as_py():
                raise KeyViolation(changes.select(list(self._key)).filter(several).slice(0, 1))
            await asyncio.to_thread(check_unique, changes, self._key)
        except KeyViolation as error:
            raise self._violated(error) from None

    async def _send(self, changes: pa.Table) -> None:
        """Sends the messages of changes with times. Changes of the same key and time must be passed together."""
        for part in _of_bounded_copies(changes) if self._key is None else (changes,):
            await self._send_part(part)
        self._written.updates += changes.num_rows

    async def _send_part(self, changes: pa.Table) -> None:
        try:
            pairs = (
                await asyncio.to_thread(self._paired, changes) if changes.num_rows > FEW_ROWS else self._paired(changes)
            )
        except KeyViolation as error:
            raise self._violated(error) from None
        rows = updates.rows_of(changes).drop_columns([TIME])
        step = _part_rows(rows)
        for start in range(0, len(pairs.group), step):
            await self._send_pairs(rows, pairs.slice(start, step))

    def _paired(self, changes: pa.Table) -> Pairs:
        if self._envelope is not Envelope.UPSERT:
            if self._key is not None and not self._is_unique:
                self._check_copies(changes)
            return paired(changes, self._key, is_unique=self._is_unique)
        if not self._is_unique:  # copies of a row are one message
            signs = pc.sign(changes[updates.DIFF]).cast(pa.int64())
            changes = changes.set_column(changes.num_columns - 1, updates.DIFF_FIELD, signs)
        return paired(changes, self._key, is_unique=self._is_unique).latest()

    def _check_copies(self, changes: pa.Table) -> None:
        """PgError if the copies of rows, which are paired by key in memory, are too many."""
        most = pc.max(pc.abs(changes[updates.DIFF])).as_py() or 0
        if most > COPIES_MAX or pc.sum(pc.abs(changes[updates.DIFF])).as_py() - changes.num_rows > COPIES_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'rows of "{self._definition.on}" have more than {COPIES_MAX} copies at one time',
                hint="Create the sink from a materialized view with GROUP BY and count(*).",
            )

    async def _send_pairs(self, rows: pa.Table, pairs: Pairs) -> None:
        encoder = self._encoder
        assert encoder is not None
        chosen: NDArray[np.int64] | None = None
        if self._partitioning is not None:
            taken = await asyncio.to_thread(_taken, rows, pairs)
            chosen = await self._partitioning.partitions(taken, self._partitions)

        def encoded() -> tuple[list[bytes | None], list[bytes] | None, list[int] | None, list[Headers] | None, int]:
            partitions = encoder.partitions(rows, pairs, self._partitions) if chosen is None else chosen
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
        await self._record(record_value(frontier))
        await self._connected.commit()
        self._frontier = frontier

    async def _record(self, value: bytes | None) -> None:
        """Writes the sink's record to the progress topic."""
        definition = self._definition
        topic = progress_topic(definition.connection).name
        await self._connected.send([value], [record_key(definition.identity)], topic=topic)

    def _violated(self, error: KeyViolation) -> PgError:
        return key_error(error, self._definition, "Create the sink with another KEY, or with KEY (...) NOT ENFORCED.")


def _taken(rows: pa.Table, pairs: Pairs) -> pa.Table:
    """The row of each message, with columns c0, c1, ..."""
    return rows.take(pa.array(either(pairs))).rename_columns([f"c{i}" for i in range(rows.num_columns)])


def _of_bounded_copies(changes: pa.Table) -> Iterator[pa.Table]:
    """The changes in parts of at most COPIES_MAX copies. A row with more of them is in several parts."""
    diffs = changes[updates.DIFF].to_numpy()
    copies = np.abs(diffs.astype(np.float64)).cumsum()
    start = 0
    while start < len(diffs):
        begin = copies[start - 1] if start else 0.0
        stop = int(np.searchsorted(copies, begin + COPIES_MAX, "right"))
        if stop > start:
            yield changes.slice(start, stop - start)
        else:
            row, left, stop = changes.slice(start, 1), int(diffs[start]), start + 1
            sign = 1 if left > 0 else -1
            while left:
                some = sign * min(abs(left), COPIES_MAX)
                yield row.set_column(row.num_columns - 1, updates.DIFF_FIELD, pa.array([some]))
                left -= some
        start = stop


def _size(messages: pa.BinaryArray) -> int:
    """The sum of the lengths."""
    return int(pc.sum(pc.binary_length(messages)).as_py() or 0)


def _part_rows(rows: pa.Table) -> int:
    """The number of rows to encode at a time, by their average size."""
    return max(1, min(PART_ROWS, int(PART_BYTES * rows.num_rows // max(rows.nbytes, 1))))
