"""The kind of source "kafka": CREATE SOURCE ... FROM KAFKA CONNECTION."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from time import time

from catalog.objects.sources import TIMESTAMPS
from catalog.source_definition import Envelope
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.history import check_timestamps, stall_timeout_s
from server.ingest.kafka.consumer import TopicConsumer, deleted
from server.ingest.kafka.layouts.by_envelope import layout_of
from server.ingest.kafka.layouts.transactions import ends_of
from server.ingest.kafka.registry import SchemaRegistry
from server.ingest.kafka.schemas import fetched_schemas, registries_of
from server.ingest.kafka.start import Start
from server.ingest.kafka.upstream import KafkaUpstream
from server.ingest.source_definition import Options, Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import UpstreamError

_OPTIONS = frozenset(
    (
        *("topic", "start offset", "start timestamp", "group id prefix", "transaction topic"),
        *("stall timeout", TIMESTAMPS),
    )
)


class KafkaKind:
    """A `SourceKind`. A source reads one topic per collection; the reference of an output is its topic."""

    async def validate(self, connection: Options) -> None:
        consumer = TopicConsumer(connection, "tidewire-validation", "tidewire-validation")
        try:
            await consumer.partitions()
        except UpstreamError as error:
            raise _failed(error) from None
        finally:
            await consumer.close()

    async def outputs(self, definition: SourceDefinition) -> Sequence[Output]:
        format, options = definition.format, definition.options
        for name in options:
            if name not in _OPTIONS:
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE, f'unrecognized option "{name.upper()}" of a Kafka source'
                )
        Start.of(options)
        stall_timeout_s(options)
        check_timestamps(options, format)
        if format is None and not definition.tables:  # CREATE TABLE ... FROM SOURCE gives each topic a format
            return ()
        if not definition.tables and (format is None or format.value is None):
            for topic in filter(None, (options.get("topic"), options.get("transaction topic"))):
                await self._checked(definition, topic)
            return ()
        if format is None or format.value is None:
            raise PgError(SqlState.SYNTAX_ERROR, "a table from a Kafka source requires a FORMAT")
        if definition.tables.all or definition.tables.schemas:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a Kafka source reads the topics that FOR TABLES names",
                hint="Write FOR TABLES (topic AS name, ...).",
            )
        topics = definition.tables.tables or (((options["topic"], None),) if "topic" in options else ())
        if not topics:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "option TOPIC of a Kafka source is missing")
        registries = registries_of(format, definition.registries)
        found = []
        try:
            for topic, alias in topics:
                await self._check(definition, topic)
                schemas = await fetched_schemas(topic, format, registries)
                layout = await asyncio.to_thread(layout_of, format, schemas, registries, definition.columns)
                key = layout.key_names if format.envelope is not Envelope.NONE else ()
                if "transaction topic" in options:
                    await self._check_transactions(definition, options["transaction topic"])
                found.append(Output(topic, alias or topic, layout.columns, key))
        except UpstreamError as error:
            raise _failed(error) from None
        if "transaction topic" in options:
            _check_topics(definition.present or frozenset(), [topic for topic, _ in topics])
        return found

    async def _checked(self, definition: SourceDefinition, topic: str) -> None:
        """As `_check`, with the error of CREATE if the brokers cannot be reached."""
        try:
            await self._check(definition, topic)
        except UpstreamError as error:
            raise _failed(error) from None

    async def _check(self, definition: SourceDefinition, topic: str) -> None:
        """PgError if the topic does not exist, or is compacted although the envelope needs every message."""
        consumer = TopicConsumer(definition.connection, topic, "tidewire-validation")
        try:
            partitions = await consumer.partitions()
            if partitions is None:
                raise deleted(topic)
            if topic != definition.options.get("transaction topic"):
                Start.of(definition.options).check(topic, partitions)
            is_classic = definition.format is not None and definition.format.envelope is Envelope.DEBEZIUM
            if is_classic and await consumer.is_compacted():
                raise PgError(
                    SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                    f'topic "{topic}" is compacted, so changes are missing that ENVELOPE DEBEZIUM needs',
                    hint="Set the topic's cleanup.policy to delete and produce it again, "
                    "or use ENVELOPE DEBEZIUM UPSERT.",
                )
        finally:
            await consumer.close()

    async def _check_transactions(self, definition: SourceDefinition, topic: str) -> None:
        """PgError if the topic of transactions cannot be used."""
        assert definition.format is not None
        registries = registries_of(definition.format, definition.registries)
        schemas = await fetched_schemas(topic, definition.format, registries)
        registry = registries["value"]
        if registry is None or schemas.value is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "option TRANSACTION TOPIC requires a schema registry",
                hint="Use FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
            )
        ends_of(schemas.value, registry)
        await self._check(definition, topic)

    async def fixed_options(self, definition: SourceDefinition) -> Mapping[str, str]:
        """A START that is relative to the present is replaced: messages that are produced from now on are read.

        START OFFSET of several topics is the same for all of them, and therefore remains.
        """
        start = Start.of(definition.options)
        topics = {*filter(None, (definition.options.get("topic"),)), *(name for name, _ in definition.tables.tables)}
        if start.is_relative and len(topics) == 1:
            (topic,) = topics
            consumer = TopicConsumer(definition.connection, topic, "tidewire-validation")
            try:
                relative = [partition for partition, offset in enumerate(start.offsets) if offset < 0]
                start = start.fixed(await consumer.watermarks(relative), time())
            except UpstreamError as error:
                raise _failed(error) from None
            finally:
                await consumer.close()
        elif start.timestamp is not None:
            start = start.fixed({}, time())
        return {**definition.options, **start.options}

    def upstream(
        self, definition: SourceDefinition, targets: Sequence[Target], context: SourceContext
    ) -> KafkaUpstream:
        return KafkaUpstream(definition, tuple(targets), context)

    async def dropped(self, definition: SourceDefinition) -> None:
        """Nothing was created in Kafka."""


def _check_topics(present: Set[str], added: Sequence[str]) -> None:
    """PgError if a topic that is merged by its transactions would have two tables."""
    for number, topic in enumerate(added):
        if topic in present or topic in added[:number]:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'a second table of topic "{topic}" in a source with TRANSACTION TOPIC is not supported',
                hint="Create another source for it.",
            )


async def validate_registry(connection: Options) -> None:
    """Contacts a schema registry. PgError if it cannot be reached, or refuses access."""
    try:
        await SchemaRegistry(connection).validate()
    except UpstreamError as error:
        raise _failed(error) from None


def _failed(error: UpstreamError) -> PgError:
    return PgError(SqlState.CONNECTION_FAILURE, error.message, hint=error.hint)
