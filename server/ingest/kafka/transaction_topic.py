"""The topic of transaction metadata of a source: reads it, and merges the messages of the other topics by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from catalog.source_state import State
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.avro_format import AvroFormat
from server.ingest.kafka.consumer import TopicConsumer
from server.ingest.kafka.envelopes.envelope import worked
from server.ingest.kafka.layouts.debezium import OP, SOURCE
from server.ingest.kafka.layouts.transactions import NUMBER, TRANSACTION
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Upstream, positions, restored
from server.ingest.kafka.transactions import End, Release, TopicBuffer, TransactionMerger, key_of

_OFFSET, _NUMBER, _EVENT = "transactions/offset", "transactions/number/", "event/"


@dataclass(frozen=True)
class MergedTopic:
    """A topic whose messages are merged. `prefix`: of the keys of its state."""

    prefix: str
    origin: Upstream
    format: AvroFormat
    buffer: TopicBuffer

    @classmethod
    def restored(
        cls, prefix: str, found: tuple[Upstream, AvroFormat], offsets: Mapping[int, int], state: State
    ) -> MergedTopic:
        origin, format = found
        start = prefix + _EVENT
        known = {
            int(key.removeprefix(start)): restored(found[0], json.loads(value))
            for key, value in state.items()
            if key.startswith(start) and value is not None
        }
        return cls(prefix, origin, format, TopicBuffer(origin, offsets, known))

    def state_of(self, release: Release) -> dict[str, bytes | None]:
        """The state to be stored with the changes of a release."""
        found: dict[str, bytes | None] = {
            f"{self.prefix}{_EVENT}{partition}": json.dumps(highest).encode()
            for partition, highest in release.positions.items()
        }
        for partition, offset in release.offsets.items():
            found[f"{self.prefix}offset/{partition}"] = b"%d" % offset
        return found


class TransactionTopic:
    """Merges topics of one upstream database by transaction."""

    def __init__(self, consumer: TopicConsumer, format: AvroFormat, topics: Mapping[str, MergedTopic], state: State):
        """`topics`: by name. `state`: of the source, as stored. PgError if the topics are of several databases."""
        self.consumer = consumer
        self._format = format
        self._topics = topics
        origins = {topic.origin for topic in topics.values()}
        if len(origins) != 1:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "option TRANSACTION TOPIC requires topics of one upstream database",
                hint="Create a source for the topics of each database.",
            )
        (self._origin,) = origins
        numbers = {
            key.removeprefix(_NUMBER): int(value)
            for key, value in state.items()
            if key.startswith(_NUMBER) and value is not None
        }
        self.merger = TransactionMerger({name: topic.buffer for name, topic in topics.items()}, numbers)

    async def start(self, state: State) -> None:
        """Assigns the consumer. PgError if the topic has several partitions."""
        if await self.consumer.partitions() != 1:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'topic "{self.consumer.topic}" of option TRANSACTION TOPIC must exist and have one partition',
            )
        ((low, high),) = (await self.consumer.watermarks([0])).values()
        stored = state.get(_OFFSET)
        # Messages before `low` are of transactions whose events are released with those of the next ones.
        await self.consumer.assign({0: low if stored is None else min(max(int(stored), low), high)})

    async def add_ends(self, messages: Messages) -> None:
        """Adds the messages of this topic. PgError if one of them cannot be decoded."""
        part = (await self._format.decoder(messages.values)).decode(messages.values)
        columns = [part.columns[(name,)].to_pylist() for name in ("status", "id", "data_collections")]
        for row, (status, id, collections) in enumerate(zip(*columns, strict=True)):
            if not messages.values[row].is_valid:
                continue
            offset = int(messages.offsets[row])
            try:
                if part.failed[row]:
                    raise ValueError(part.reason(row))
                if status == "BEGIN":
                    self.merger.begin(key_of(self._origin, id), int(messages.timestamps[row]))
                elif status == "END":
                    self.merger.add(End.of(self._origin, id, collections, offset + 1))
            except (ValueError, KeyError, TypeError) as error:
                raise PgError(
                    SqlState.DATA_EXCEPTION,
                    f'transaction metadata of topic "{self.consumer.topic}" cannot be read',
                    detail=f"Partition 0, offset {offset}: {error}.",
                ) from None

    async def add(self, topic: str, messages: Messages, ends: Mapping[int, int]) -> None:
        """Adds messages of another topic. Those that cannot be decoded are released with what precedes them.

        `ends`: by partition, the offset of its end, if nothing is between it and these messages or earlier ones.
        """
        own = self._topics[topic]
        messages = messages.in_order()
        decoder = await own.format.decoder(messages.values)
        part = await worked(messages, decoder.decode, messages.values)
        source = {path[1]: column for path, column in part.columns.items() if len(path) == 2 and path[0] == SOURCE}
        found = positions(own.origin, source, part.columns[(OP,)])
        is_event = ~part.failed & np.asarray(messages.values.is_valid())
        found = replace(found, known=found.known & is_event, snapshot=found.snapshot & is_event)
        ids, numbers = (part.columns[(TRANSACTION, name)] for name in ("id", NUMBER))
        own.buffer.add(messages, ids, numbers, found)
        own.buffer.reach(ends)

    def release(self) -> tuple[dict[str, list[Messages]], dict[str, bytes | None]]:
        """The messages of complete transactions by topic, and the state after them."""
        state: dict[str, bytes | None] = {}
        messages: dict[str, list[Messages]] = {}
        for name, release in self.merger.release().items():
            state.update(self._topics[name].state_of(release))
            if release.messages:
                messages[name] = release.messages
        if state and self.merger.next_offset is not None:
            state[_OFFSET] = b"%d" % self.merger.next_offset
            state.update({f"{_NUMBER}{domain}": b"%d" % number for domain, number in self.merger.numbers.items()})
        return messages, state
