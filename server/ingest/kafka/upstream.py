"""Reads topics from the offsets that were committed with the changes, and converts messages to changes.

The keys of a source's state, for each collection: `<id>/offset/<partition>` is the offset of the next message,
`<id>/schema/<part>` the Avro schema of the collection's columns, `<id>/error/...` a message that could not be decoded
(`errors`), `<id>/deduplication/<partition>` the position in the upstream database's log (`envelopes.debezium`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic, time

import pyarrow as pa

from catalog.source_definition import Envelope as EnvelopeKind
from catalog.source_definition import Format
from catalog.source_state import State
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.consumer import TopicConsumer, deleted, missing
from server.ingest.kafka.envelopes.append import AppendEnvelope
from server.ingest.kafka.envelopes.debezium import DebeziumEnvelope
from server.ingest.kafka.envelopes.envelope import Envelope
from server.ingest.kafka.envelopes.upsert import UpsertEnvelope
from server.ingest.kafka.errors import Failures
from server.ingest.kafka.keyed_output import KeyedOutput
from server.ingest.kafka.layout import Layout, Schemas, layout_of, reads_headers
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.schemas import fetched_schemas, registries_of
from server.ingest.kafka.start import Start
from server.ingest.source_kind import SourceContext, SourceDefinition, Target
from server.ingest.upstream import Changes

METADATA_S = 10.0  # between two searches for new partitions


@dataclass
class Topic:
    """A topic that fills a collection, from an open upstream."""

    target: Target
    consumer: TopicConsumer
    envelope: Envelope
    offsets: dict[int, int]
    with_headers: bool
    refreshed: float
    fresh: dict[str, bytes | None] = field(default_factory=dict)
    """State to be committed before the first messages."""

    @property
    def prefix(self) -> str:
        return prefix_of(self.target)

    def state_of(self, offsets: Mapping[int, int]) -> dict[str, bytes | None]:
        return {f"{self.prefix}offset/{partition}": b"%d" % offset for partition, offset in offsets.items()}


def prefix_of(target: Target) -> str:
    """What the keys of a collection's state begin with."""
    return f"{target.id}/"


def envelope_of(
    target: Target, format: Format, layout: Layout, state: State, context: SourceContext, *, partitions: int
) -> Envelope:
    """The envelope of a collection, as of the committed `state`. `partitions`: the number of the topic's."""
    name = target.output.reference
    failures = Failures.restored(prefix_of(target), state)

    def output() -> KeyedOutput:
        return KeyedOutput(target.id, layout.schema, layout.key_positions, context.coordinator, context.engine)

    async def current() -> pa.Table:
        return await context.coordinator.reads.rows(target.id, context.coordinator.latest_time())

    match format.envelope:
        case EnvelopeKind.NONE:
            return AppendEnvelope(name, layout, failures)
        case EnvelopeKind.UPSERT | EnvelopeKind.DEBEZIUM_UPSERT as kind:
            is_debezium = kind is EnvelopeKind.DEBEZIUM_UPSERT
            return UpsertEnvelope(name, layout, failures, output, is_debezium=is_debezium)
        case EnvelopeKind.DEBEZIUM:
            return DebeziumEnvelope(name, layout, failures, output, current, state, partitions=partitions)
    raise AssertionError(format.envelope)


class KafkaUpstream:
    """An `Upstream`: topics, each of which fills a collection."""

    def __init__(
        self,
        definition: SourceDefinition,
        targets: tuple[Target, ...],
        context: SourceContext,
        *,
        metadata_s: float = METADATA_S,
    ) -> None:
        self._definition = definition
        self._targets = targets
        self._context = context
        self._metadata_s = metadata_s
        self._start = Start.of(definition.options)
        self._topics: list[Topic] = []
        self._polls: dict[asyncio.Task[Messages | None], Topic] = {}

    async def open(self, state: State) -> None:
        for target in self._targets:
            await self._open(target, state)
        self._publish()

    async def _open(self, target: Target, state: State) -> None:
        definition, name = self._definition, target.output.reference
        format = target.format or definition.format
        assert format is not None
        prefix = prefix_of(target)
        stored = {
            int(key.removeprefix(f"{prefix}offset/")): int(value)
            for key, value in state.items()
            if key.startswith(f"{prefix}offset/") and value is not None
        }
        consumer = TopicConsumer(definition.connection, name, f"tidewire-{definition.identity or 'source'}")
        try:
            partitions = await consumer.partitions()
            if partitions is None:
                raise deleted(name)
            layout, fresh = await self._layout(target, format, state)
            offsets = await self._offsets(consumer, partitions, stored)
            envelope = envelope_of(target, format, layout, state, self._context, partitions=partitions)
            topic = Topic(target, consumer, envelope, offsets, reads_headers(format), monotonic())
            topic.fresh = {**fresh, **({} if offsets == stored else topic.state_of(offsets))}
            self._topics.append(topic)
            await consumer.assign(offsets)
        except BaseException:
            await consumer.close()
            raise

    async def _layout(self, target: Target, format: Format, state: State) -> tuple[Layout, dict[str, bytes | None]]:
        """The collection's layout, and its schemas if they are not in the state yet. PgError if they have changed."""
        registries = registries_of(format, self._definition.registries)
        prefix = prefix_of(target)
        key, value = state.get(f"{prefix}schema/key"), state.get(f"{prefix}schema/value")
        fresh: dict[str, bytes | None] = {}
        if key is not None and value is not None:
            schemas = Schemas(key.decode() or None, value.decode() or None)
        else:
            schemas = await fetched_schemas(target.output.reference, format, registries)
            fresh = {
                f"{prefix}schema/key": (schemas.key or "").encode(),
                f"{prefix}schema/value": (schemas.value or "").encode(),
            }
        layout = layout_of(format, schemas, registries)
        found = [(column.name, column.type) for column in layout.columns]
        if [(column.name, column.type) for column in target.output.columns] != found:
            raise PgError(
                SqlState.DATATYPE_MISMATCH,
                f'schema of topic "{target.output.reference}" has changed since the source was created',
                hint="Drop the source and create it again.",
            )
        return layout, fresh

    async def _offsets(self, consumer: TopicConsumer, partitions: int, stored: Mapping[int, int]) -> dict[int, int]:
        """The offsets of the next messages. PgError if they are no longer in the topic."""
        found: dict[int, int] = {}
        for partition in sorted({*range(partitions), *stored}):
            if partition >= partitions:
                raise missing(consumer.topic, partition, f"The topic has {partitions} partitions.")
            low, high = await consumer.watermarks(partition)
            offset = stored.get(partition)
            if offset is None:
                # The start applies to the partitions that exist at the first start. Later ones are read as a whole.
                offset = low if stored else await self._start.offset(consumer, partition, (low, high), time())
            elif not low <= offset <= high:
                detail = f"The next offset is {offset}, and the topic has offsets {low} to {high}."
                raise missing(consumer.topic, partition, detail)
            found[partition] = offset
        return found

    async def read(self, bytes_max: int) -> Changes:
        fresh = {key: value for topic in self._topics for key, value in topic.fresh.items()}
        if fresh:
            for topic in self._topics:
                topic.fresh = {}
            return Changes({}, fresh)
        while True:
            polled = {topic.target.id for topic in self._polls.values()}
            for topic in self._topics:
                if topic.target.id not in polled:
                    task = asyncio.create_task(self._poll(topic, bytes_max))
                    self._polls[task] = topic
            done, _ = await asyncio.wait(self._polls, return_when=asyncio.FIRST_COMPLETED)
            task = done.pop()
            topic = self._polls.pop(task)
            if (messages := task.result()) is not None:
                return await self._changes(topic, messages)

    async def _poll(self, topic: Topic, bytes_max: int) -> Messages | None:
        if monotonic() - topic.refreshed >= self._metadata_s:
            await self._find_partitions(topic)
            topic.refreshed = monotonic()
        return await topic.consumer.poll(bytes_max, with_headers=topic.with_headers)

    async def _find_partitions(self, topic: Topic) -> None:
        """Reads new partitions from their first message on. PgError if the topic was deleted."""
        count = await topic.consumer.partitions()
        if count is None:
            raise deleted(topic.consumer.topic)
        new = [partition for partition in range(count) if partition not in topic.offsets]
        found = {partition: (await topic.consumer.watermarks(partition))[0] for partition in new}
        if found:
            topic.envelope.partitions_added(count)
            topic.offsets.update(found)
            await topic.consumer.assign(found)

    async def _changes(self, topic: Topic, messages: Messages) -> Changes:
        step = await topic.envelope.step(messages)
        offsets = messages.next_offsets()
        topic.offsets.update(offsets)
        statistics = self._context.statistics
        statistics.messages_received += len(messages)
        statistics.bytes_received += messages.nbytes
        return Changes({topic.target.id: list(step.tables)}, {**step.state, **topic.state_of(offsets)})

    async def committed(self, state: State) -> None:
        self._publish()

    def _publish(self) -> None:
        """Updates the statistics, and the errors of collections that cannot be read."""
        statistics = self._context.statistics
        statistics.offset_committed = sum(offset for topic in self._topics for offset in topic.offsets.values())
        known = [
            topic.consumer.high_watermark(partition) or offset
            for topic in self._topics
            for partition, offset in topic.offsets.items()
        ]
        statistics.offset_known = max(sum(known), statistics.offset_committed)
        for topic in self._topics:
            error = topic.envelope.failures.error
            if error is None:
                statistics.errors.pop(topic.target.id, None)
            else:
                statistics.errors[topic.target.id] = error

    async def close(self) -> None:
        polls, self._polls = list(self._polls), {}
        topics, self._topics = self._topics, []
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        for topic in topics:
            topic.envelope.close()
        await asyncio.gather(*(topic.consumer.close() for topic in topics))
