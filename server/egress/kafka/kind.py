"""The kind of sink `kafka`."""

from __future__ import annotations

from pathlib import Path

from catalog.source_definition import Envelope
from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Downstream, Written
from server.egress.history import History
from server.egress.kafka import headers, partitioning
from server.egress.kafka.output import TopicOutput
from server.egress.kafka.progress import progress_topic
from server.egress.kafka.row_topic import RowTopic
from server.egress.kafka.schemas import key_encoding, subjects, value_encoding
from server.egress.kafka.topic import Topic
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.registry import incompatible
from server.ingest.upstream import UpstreamError
from server.spark import Runner

_ENVELOPES = (Envelope.UPSERT, Envelope.DEBEZIUM, Envelope.MATERIALIZE)


class KafkaSink:
    """CREATE SINK ... INTO KAFKA CONNECTION c (TOPIC 't') [KEY (...)] FORMAT ... ENVELOPE ..."""

    async def check(self, definition: SinkDefinition) -> None:
        _check_format(definition)
        partitioning.check(definition)
        headers.position(definition)
        topic = Topic.of(definition.options)
        if topic.name == progress_topic(definition.connection).name:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f'topic "{topic.name}" is the progress topic of the connection'
            )
        schemas = subjects(definition)
        try:
            await topic.partition_count(definition.connection)
            for subject, schema, registry in schemas:
                if not await registry.is_compatible(subject, schema):
                    raise incompatible(subject)
        except UpstreamError as error:
            raise PgError(SqlState.CONNECTION_FAILURE, error.message, hint=error.hint) from error

    def downstream(
        self, definition: SinkDefinition, written: Written, runner: Runner, scratch: Path | None = None
    ) -> Downstream:
        assert definition.format is not None
        if definition.format.envelope is Envelope.MATERIALIZE:
            return History(TopicOutput(definition), written, continues=definition.continues, scratch=scratch)
        return RowTopic(definition, written, runner, scratch)

    async def dropped(self, definition: SinkDefinition) -> None:
        """Deletes the frontier. The topic and the schemas are kept."""
        assert definition.format is not None
        if definition.format.envelope is not Envelope.MATERIALIZE:
            topic = RowTopic(definition, Written())
            try:
                await topic.forget()
            finally:
                await topic.close()


def _check_format(definition: SinkDefinition) -> None:
    format = definition.format
    if format is None or format.value is None:
        raise PgError(SqlState.SYNTAX_ERROR, "a sink into Kafka requires a FORMAT")
    if format.include or format.inline_errors is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "INCLUDE and VALUE DECODING ERRORS are not supported for sinks",
            hint="Omit them: sinks write the columns of the collection.",
        )
    for encoding in (value_encoding(definition), key_encoding(definition)):
        if encoding.name not in ("avro", "json"):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"FORMAT {encoding.name.upper()} is not supported for sinks",
                hint="Use FORMAT JSON, or FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
            )
        if encoding.name == "avro" and encoding.registry is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "FORMAT AVRO of a sink requires a schema registry connection",
                hint="Write FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
            )
    if format.envelope not in _ENVELOPES:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {format.envelope.upper()} is not supported for sinks into Kafka",
            hint="Use ENVELOPE UPSERT, DEBEZIUM or MATERIALIZE.",
        )
    if format.envelope is Envelope.UPSERT and not definition.key:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "ENVELOPE UPSERT of a sink requires a KEY",
            hint="Add KEY (column, ...) after the options of the topic.",
        )
    if format.envelope is Envelope.MATERIALIZE and partitioning.OPTION in definition.options:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "PARTITION BY is not supported for sinks with ENVELOPE MATERIALIZE",
            detail="A message has the changes of many rows, and readers accept messages in any partition.",
            hint="Omit PARTITION BY, or use ENVELOPE UPSERT or DEBEZIUM.",
        )
    if format.envelope is not Envelope.UPSERT and headers.OPTION in definition.options:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "HEADERS of a sink requires ENVELOPE UPSERT",
            hint="Use ENVELOPE UPSERT, or omit HEADERS.",
        )
    if format.envelope is Envelope.MATERIALIZE and (definition.key or format.key is not None):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "KEY is not supported for sinks with ENVELOPE MATERIALIZE",
            hint="Omit KEY, or use ENVELOPE UPSERT or DEBEZIUM.",
        )
