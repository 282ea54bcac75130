"""ENVELOPE MATERIALIZE: CDCv2 messages in any partition. After a crash, those after the committed frontier repeat."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.cdcv2.avro_form import AvroEncoder
from protocol.cdcv2.json_form import JsonEncoder
from server.egress.history import Encoder
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.schemas import value_encoding, value_prefix
from server.egress.kafka.topic import Topic, ensure
from server.egress.sink_kind import SinkDefinition


class TopicOutput:
    """A `MessageOutput` that writes to a topic."""

    def __init__(self, definition: SinkDefinition) -> None:
        self._definition = definition
        self._topic = Topic.of(definition.options)
        self._producer: TopicProducer | None = None

    async def open(self, *, is_new: bool) -> Encoder:
        definition, topic = self._definition, self._topic
        await ensure(topic, definition.connection, is_new=is_new and not definition.continues)
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
        count, size = 0, 0

        def counted() -> Iterable[bytes]:
            nonlocal count, size
            for message in messages:
                count, size = count + 1, size + len(message)
                yield message

        await self._producer.send(counted())
        return count, size

    async def flush(self) -> None:
        assert self._producer is not None
        await self._producer.flush()

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
