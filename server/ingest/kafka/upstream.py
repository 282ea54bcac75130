"""Reads topics from the offsets that were committed with the changes, and converts messages to changes.

The keys of a source's state, for each collection: `<id>/topic` is the id of the topic, `<id>/offset/<partition>` the
offset of the next message, `<id>/schema/<part>` the Avro schema of the collection's columns, `<id>/error/...` a message
that could not be decoded (`errors`), `<id>/deduplication/<partition>` the position in the upstream database's log
(`envelopes.debezium`), `<id>/event/<partition>` that of the last event of a released transaction (`transaction_topic`),
`<id>/frontier` the upstream time before which everything is committed (`history`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time
from typing import Any

import pyarrow as pa

from catalog.collection_errors import CollectionError
from catalog.ids import ObjectId
from catalog.source_definition import Envelope as EnvelopeKind
from catalog.source_definition import Format
from catalog.source_state import State
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.reads import error_of
from server.ingest.history import STALL_S, History, keeps_times, stall_timeout_s
from server.ingest.kafka.consumer import Poll, TopicConsumer, created_again, deleted, missing
from server.ingest.kafka.envelopes.append import AppendEnvelope
from server.ingest.kafka.envelopes.debezium import DebeziumEnvelope
from server.ingest.kafka.envelopes.envelope import Envelope
from server.ingest.kafka.envelopes.materialize import MaterializeEnvelope
from server.ingest.kafka.envelopes.upsert import UpsertEnvelope
from server.ingest.kafka.errors import LASTING_HINT, Failures
from server.ingest.kafka.layouts.by_envelope import layout_of
from server.ingest.kafka.layouts.layout import Layout, Schemas
from server.ingest.kafka.layouts.metadata import reads_headers
from server.ingest.kafka.layouts.transactions import ends_of, events_of
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.schemas import fetched_schemas, registries_of
from server.ingest.kafka.start import Start
from server.ingest.kafka.transaction_topic import MergedTopic, TransactionTopic
from server.ingest.key_join import KeyJoin
from server.ingest.keyed_rows import KeyedRows
from server.ingest.source_definition import SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Changes

METADATA_S = 10.0  # between two searches for new partitions, and for another topic of the same name


@dataclass
class Topic:
    """A topic that fills a collection, from an open upstream."""

    target: Target
    consumer: TopicConsumer
    id: str | None
    """Distinguishes the topic from a later one of the same name. None if the brokers have no ids."""
    envelope: Envelope
    schemas: Schemas
    offsets: dict[int, int]
    with_headers: bool
    refreshed: float
    fresh: dict[str, bytes | None] = field(default_factory=dict)
    """State to be committed before the first messages."""
    search: asyncio.Task[dict[int, tuple[int, int]]] | None = None
    """The search for new partitions, while messages are read."""
    ends: dict[int, int] = field(default_factory=dict)
    """By partition the offset after the last message, when the broker was last asked."""

    @property
    def prefix(self) -> str:
        return prefix_of(self.target)

    def after(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Those of `offsets` that are after the committed ones."""
        return {partition: offset for partition, offset in offsets.items() if offset > self.offsets[partition]}

    def state_of(self, offsets: Mapping[int, int]) -> dict[str, bytes | None]:
        return {f"{self.prefix}offset/{partition}": b"%d" % offset for partition, offset in offsets.items()}


def prefix_of(target: Target) -> str:
    """The prefix of the keys of a collection's state."""
    return f"{target.id}/"


def envelope_of(
    target: Target,
    format: Format,
    layout: Layout,
    state: State,
    context: SourceContext,
    *,
    partitions: int,
    stall_s: float = STALL_S,
    keeps_times: bool = False,
) -> Envelope:
    """The envelope of a collection, as of the committed `state`. `partitions`: the number of the topic's."""
    name, decoders = target.output.reference, context.decoders
    failures = Failures.restored(prefix_of(target), state, context.statistics.count_invalid)

    def output() -> KeyJoin:
        rows = KeyedRows(context.coordinator, target.id, layout.schema, layout.key_positions)
        return KeyJoin(rows, context.engine)

    async def current() -> pa.Table:
        return await context.coordinator.reads.decoded_rows(target.id, context.coordinator.latest_time())

    match format.envelope:
        case EnvelopeKind.NONE:
            return AppendEnvelope(name, layout, failures, decoders)
        case EnvelopeKind.UPSERT | EnvelopeKind.DEBEZIUM_UPSERT as kind:
            is_debezium = kind is EnvelopeKind.DEBEZIUM_UPSERT
            return UpsertEnvelope(name, layout, failures, decoders, output, is_debezium=is_debezium)
        case EnvelopeKind.DEBEZIUM:
            return DebeziumEnvelope(name, layout, failures, decoders, output, current, state, partitions=partitions)
        case EnvelopeKind.MATERIALIZE:
            assert layout.changes is not None
            history: History[int] = History(
                name,
                layout.changes.schema,
                state,
                prefix_of(target),
                stall_s=stall_s,
                keeps_times=keeps_times,
                count_invalid=context.statistics.count_invalid,
            )
            if history.closed is not None:
                context.coordinator.upstream_times.resume(target.id, history.closed)
            context.statistics.histories[target.id] = history.status
            return MaterializeEnvelope(name, layout.changes, history, failures, decoders)
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
        self._stall_s = stall_timeout_s(definition.options)
        self._keeps_times = keeps_times(definition.options)
        self._topics: list[Topic] = []
        self._polls: dict[asyncio.Task[tuple[Poll, Any] | None], Topic | TransactionTopic] = {}
        self._transactions: TransactionTopic | None = None

    async def open(self, state: State) -> None:
        for target in self._targets:
            await self._open(target, state)
        if (name := self._definition.options.get("transaction topic")) is not None:
            await self._open_transactions(name, state)
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
        is_history = format.envelope is EnvelopeKind.MATERIALIZE
        consumer = TopicConsumer(definition.connection, name, self._group, evenly=is_history)
        try:
            partitions = await consumer.partitions()
            if partitions is None:
                raise deleted(name)
            layout, schemas, fresh = await self._layout(target, format, state)
            id = await self._identity(consumer, prefix, state)
            if id is not None and state.get(f"{prefix}topic") is None:
                fresh[f"{prefix}topic"] = id.encode()
            watermarks = await consumer.watermarks(range(partitions))
            offsets = await self._offsets(consumer, watermarks, stored)
            envelope = envelope_of(
                target,
                format,
                layout,
                state,
                self._context,
                partitions=partitions,
                stall_s=self._stall_s,
                keeps_times=self._keeps_times,
            )
            topic = Topic(target, consumer, id, envelope, schemas, offsets, reads_headers(format), monotonic())
            topic.ends = {partition: high for partition, (_, high) in watermarks.items()}
            topic.fresh = {**fresh, **({} if offsets == stored else topic.state_of(offsets))}
            self._topics.append(topic)
            await consumer.assign(offsets)
        except BaseException:
            await consumer.close()
            raise

    async def _open_transactions(self, name: str, state: State) -> None:
        """Merges the topics by the transactions that the topic `name` describes."""
        merged: dict[str, MergedTopic] = {}
        ends = None
        for topic in self._topics:
            format = topic.target.format or self._definition.format
            assert format is not None
            registry = registries_of(format, self._definition.registries)["value"]
            schema = None if registry is None else await registry.latest(f"{name}-value")
            if registry is None or schema is None:
                raise deleted(name)
            ends = ends_of(schema, registry)
            found = events_of(topic.schemas, format, registry)
            merged[topic.consumer.topic] = MergedTopic.restored(topic.prefix, found, topic.offsets, state)
        if ends is None:
            return
        consumer = TopicConsumer(self._definition.connection, name, self._group)
        try:
            transactions = TransactionTopic(consumer, ends, merged, state)
            await transactions.start(state)
        except BaseException:
            await consumer.close()
            raise
        self._transactions = transactions

    @property
    def _group(self) -> str:
        definition = self._definition
        return f"{definition.options.get('group id prefix', '')}tidewire-{definition.identity or 'source'}"

    async def _layout(
        self, target: Target, format: Format, state: State
    ) -> tuple[Layout, Schemas, dict[str, bytes | None]]:
        """The collection's layout and schemas, and their state if it has none yet. PgError if they have changed."""
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
        layout = await asyncio.to_thread(layout_of, format, schemas, registries, self._definition.columns)
        found = [(column.name, column.type) for column in layout.columns]
        if [(column.name, column.type) for column in target.output.columns] != found:
            raise PgError(
                SqlState.DATATYPE_MISMATCH,
                f'schema of topic "{target.output.reference}" has changed since the source was created',
                hint="Drop the source and create it again.",
            )
        return layout, schemas, fresh

    async def _identity(self, consumer: TopicConsumer, prefix: str, state: State) -> str | None:
        """The topic's id, None if the brokers have no ids. PgError if the topic is not that of the state."""
        stored, found = state.get(f"{prefix}topic"), await consumer.topic_id()
        if found is not None and stored is not None and stored != found.encode():
            raise created_again(consumer.topic)
        return found

    async def _offsets(
        self, consumer: TopicConsumer, watermarks: Mapping[int, tuple[int, int]], stored: Mapping[int, int]
    ) -> dict[int, int]:
        """The offsets of the next messages. PgError if they are no longer in the topic."""
        found: dict[int, int] = {}
        for partition in sorted(stored):
            if partition not in watermarks:
                raise missing(consumer.topic, partition, f"The topic has {len(watermarks)} partitions.")
        for partition, (low, high) in watermarks.items():
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
        errors = self._changed_errors()  # a version that did not commit them has opened the source before
        if fresh or errors:
            for topic in self._topics:
                topic.fresh = {}
            return Changes({}, fresh, errors=errors)
        if not self._topics:
            await asyncio.Event().wait()
        while True:
            self._begin_polls(bytes_max)
            done, _ = await asyncio.wait(self._polls, return_when=asyncio.FIRST_COMPLETED)
            task = done.pop()
            polled = self._polls.pop(task)
            if (found := task.result()) is None:
                continue
            poll, ahead = found
            statistics = self._context.statistics
            statistics.messages_received += len(poll.messages)
            statistics.bytes_received += poll.messages.nbytes
            if self._transactions is not None:
                changes = await self._merged(self._transactions, polled, poll)
            else:
                assert isinstance(polled, Topic)
                self._begin_polls(bytes_max)  # the next messages are decoded meanwhile
                state = polled.state_of(polled.after(poll.next_offsets()))
                changes = await self._changes({polled.consumer.topic: poll.messages}, state, polled, ahead)
            if changes.state:
                return changes

    def _begin_polls(self, bytes_max: int) -> None:
        """Polls every topic that is not being polled and whose messages are wanted."""
        polled = {id(topic) for topic in self._polls.values()}
        transactions = self._transactions
        for topic in self._topics:
            wanted = transactions is None or transactions.merger.accepts(topic.consumer.topic)
            if id(topic) not in polled and wanted:
                self._polls[asyncio.create_task(self._poll(topic, bytes_max))] = topic
        if transactions is not None and id(transactions) not in polled and transactions.merger.accepts_ends:
            self._polls[asyncio.create_task(_poll_ends(transactions, bytes_max))] = transactions

    async def _poll(self, topic: Topic, bytes_max: int) -> tuple[Poll, Any] | None:
        """The next messages, and what the envelope does ahead of its step."""
        if topic.search is None and monotonic() - topic.refreshed >= self._metadata_s:
            topic.search = asyncio.create_task(_watermarks(topic))
        elif topic.search is not None and topic.search.done():
            search, topic.search, topic.refreshed = topic.search, None, monotonic()
            await self._add_partitions(topic, search.result())
        try:
            poll = await topic.consumer.poll(bytes_max, with_headers=topic.with_headers)
        except PgError:
            await _watermarks(topic)  # fails if the reason is that the topic was deleted or created again
            raise
        if poll is None:
            return None
        is_next = self._transactions is None and len(poll.messages)
        return poll, await topic.envelope.ahead(poll.messages) if is_next else None

    async def _add_partitions(self, topic: Topic, watermarks: Mapping[int, tuple[int, int]]) -> None:
        """Reads the partitions that are not read yet, from their first messages on."""
        topic.ends = {partition: high for partition, (_, high) in watermarks.items()}
        new = {partition: low for partition, (low, _) in watermarks.items() if partition not in topic.offsets}
        if new:
            topic.offsets.update(new)
            topic.envelope.partitions_added(max(topic.offsets) + 1)
            await topic.consumer.assign(new)

    async def _merged(self, transactions: TransactionTopic, polled: Topic | TransactionTopic, poll: Poll) -> Changes:
        """The changes of the transactions that are complete with the messages of a poll."""
        if isinstance(polled, Topic):
            await transactions.add(polled.consumer.topic, poll.messages, polled.after(poll.ends))
        else:
            await transactions.add_ends(poll.messages)
        found, state = transactions.release()
        while transactions.merger.wants_goals:
            transactions.merger.reach({topic.consumer.topic: await self._ends(topic) for topic in self._topics})
            more, later = transactions.release()
            for name, parts in more.items():
                found[name] = found.get(name, []) + parts
            state |= later
        return await self._changes({name: Messages.joined(parts) for name, parts in found.items()}, state)

    async def _ends(self, topic: Topic) -> dict[int, int]:
        """The offset after the last message, by partition that has one."""
        watermarks = await _watermarks(topic)
        await self._add_partitions(topic, watermarks)
        return {partition: high for partition, (low, high) in watermarks.items() if high > low}

    async def _changes(
        self,
        found: Mapping[str, Messages],
        state: Mapping[str, bytes | None],
        polled: Topic | None = None,
        ahead: Any = None,
    ) -> Changes:
        """The changes of messages, by topic. `state`: of their offsets.

        `polled`: whose messages they are; another collection of the same topic polls its own. None: of all.
        `ahead`: of its envelope.
        """
        writes: dict[ObjectId, list[pa.Table]] = {}
        closed: dict[ObjectId, int] = {}
        states = dict(state)
        for topic in self._topics if polled is None else [polled]:
            if (messages := found.get(topic.consumer.topic)) is not None and len(messages):
                step = await topic.envelope.step(messages, ahead)
                if step.tables:
                    writes[topic.target.id] = list(step.tables)
                if step.closed is not None:
                    closed[topic.target.id] = step.closed
                states.update(step.state)
            start = f"{topic.prefix}offset/"
            own = {
                int(key.removeprefix(start)): int(value)
                for key, value in state.items()
                if value and key.startswith(start)
            }
            topic.offsets |= own
            if own and (resumed := topic.envelope.resume_offsets(topic.offsets)) is not None:
                states.update(topic.state_of(resumed))
        return Changes(writes, states, errors=self._changed_errors(), closed=closed)

    def _changed_errors(self) -> dict[ObjectId, CollectionError | None]:
        """The errors of collections that differ from the committed ones."""
        known = self._context.coordinator.errors
        changed = {}
        for id, failures in ((topic.target.id, topic.envelope.failures) for topic in self._topics):
            if (error := failures.error(known.latest(id))) != known.latest(id):
                changed[id] = error
        return changed

    async def committed(self, state: State) -> None:
        self._publish()
        for topic in self._topics:
            await topic.envelope.committed()

    def _publish(self) -> None:
        """Updates the statistics, and the errors of collections that cannot be read."""
        statistics = self._context.statistics
        statistics.offset_committed = sum(offset for topic in self._topics for offset in topic.offsets.values())
        known = [
            max(offset, topic.ends.get(partition, 0))
            for topic in self._topics
            for partition, offset in topic.offsets.items()
        ]
        statistics.offset_known = sum(known)
        for topic in self._topics:
            error = self._context.coordinator.errors.latest(topic.target.id)
            statistics.errors.pop(topic.target.id, None)
            statistics.stalls.pop(topic.target.id, None)
            if error is not None and error.hint == LASTING_HINT:
                statistics.errors[topic.target.id] = error_of(error)
            elif error is not None:
                statistics.stalls[topic.target.id] = partial(error_of, error)

    async def close(self) -> None:
        polls, self._polls = list(self._polls), {}
        topics, self._topics = self._topics, []
        tasks = [*polls, *(topic.search for topic in topics if topic.search is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for topic in topics:
            topic.envelope.close()
        transactions, self._transactions = self._transactions, None
        consumers = [topic.consumer for topic in topics] + ([transactions.consumer] if transactions else [])
        await asyncio.gather(*(consumer.close() for consumer in consumers))


async def _watermarks(topic: Topic) -> dict[int, tuple[int, int]]:
    """The watermarks of all partitions. PgError if the topic was deleted, or created again."""
    count = await topic.consumer.partitions()
    if count is None:
        raise deleted(topic.consumer.topic)
    if topic.id is not None and await topic.consumer.topic_id() not in (topic.id, None):
        raise created_again(topic.consumer.topic)
    return await topic.consumer.watermarks(range(count))


async def _poll_ends(transactions: TransactionTopic, bytes_max: int) -> tuple[Poll, None] | None:
    poll = await transactions.consumer.poll(bytes_max)
    return None if poll is None else (poll, None)
