"""ENVELOPE MATERIALIZE: CDCv2 messages, in the partitions in turn. After a crash, those after the frontier repeat."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import cycle

from catalog.ids import Timestamp
from protocol.cdcv2.avro_form import AvroEncoder
from protocol.cdcv2.json_form import JsonEncoder
from server.egress.history import Encoder
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.schemas import value_encoding, value_prefix
from server.egress.kafka.topic import Topic, WrittenTopic
from server.egress.sink_kind import SinkDefinition


class TopicOutput:
    """A `MessageOutput` that writes to a topic."""

    def __init__(self, definition: SinkDefinition) -> None:
        self._definition = definition
        self._topic = Topic.of(definition.options)
        self._written: WrittenTopic | None = None
        self._producer: TopicProducer | None = None
        self._partitions: Iterator[int] = iter(())

    @property
    def target(self) -> str | None:
        return None if self._written is None else self._written.id

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Encoder:
        definition, topic = self._definition, self._topic
        is_new = committed is None and not definition.continues
        self._written = written = await WrittenTopic.open(topic, definition.connection, is_new=is_new)
        written.check(target)
        count = written.partitions
        # A reader of all partitions then receives messages nearly in their order. librdkafka would choose one partition
        # for all messages of 10 ms. Sinks that write little do not all begin with the same partition.
        first = random.randrange(count)
        self._partitions = cycle([*range(first, count), *range(first)])
        columns = definition.encoded_columns
        encoder: Encoder
        if value_encoding(definition).name == "json":
            encoder = JsonEncoder(columns)
        else:
            encoder = AvroEncoder(columns, await value_prefix(definition))
        self._producer = TopicProducer(definition.connection, topic.name, compression=topic.compression)
        return encoder

    async def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        assert self._producer is not None
        assert self._written is not None
        await self._written.check_sometimes()
        count, size = 0, 0

        def counted() -> Iterable[bytes]:
            nonlocal count, size
            for message in messages:
                count, size = count + 1, size + len(message)
                yield message

        await self._producer.send(counted(), partitions=self._partitions)
        return count, size

    async def flush(self) -> None:
        assert self._producer is not None
        await self._producer.flush()

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
        if self._written is not None:
            await self._written.close()
            self._written = None
