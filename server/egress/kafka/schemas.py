"""The Avro schemas of a sink's messages, and their registration. Record names are those of Materialize."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from catalog.source_definition import Encoding, Envelope
from protocol.avro.encoder import EncodedColumn, fields_of
from protocol.cdcv2.avro_form import schema_text
from protocol.pgwire.errors import PgError, SqlState
from server.egress.row_messages import AvroForm, JsonForm, RecordForm
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.registry import SchemaRegistry


def value_schema(definition: SinkDefinition) -> str:
    """The schema of values. PgError if a column name is not valid in Avro."""
    assert definition.format is not None
    columns = definition.encoded_columns
    try:
        match definition.format.envelope:
            case Envelope.MATERIALIZE:
                return schema_text(columns)
            case Envelope.DEBEZIUM:
                row = _record("row", fields_of(columns))
                fields: list[dict[str, Any]] = [
                    {"name": "before", "type": ["null", row]},
                    {"name": "after", "type": ["null", "row"]},
                ]
                return json.dumps(_record("envelope", fields))
            case _:
                return json.dumps(_record("envelope", fields_of(columns)))
    except ValueError as error:
        raise _invalid_name(error) from None


def key_schema(definition: SinkDefinition) -> str:
    """The schema of keys. PgError if a column name is not valid in Avro."""
    try:
        return json.dumps(_record("row", fields_of(key_columns(definition))))
    except ValueError as error:
        raise _invalid_name(error) from None


def key_columns(definition: SinkDefinition) -> list[EncodedColumn]:
    """The columns of KEY, in the order of KEY."""
    columns = definition.encoded_columns
    return [columns[position] for position in definition.key_positions or ()]


def key_encoding(definition: SinkDefinition) -> Encoding:
    """The format of keys: KEY FORMAT, or else FORMAT."""
    assert definition.format is not None
    encoding = definition.format.key or definition.format.value
    assert encoding is not None
    return encoding


def value_encoding(definition: SinkDefinition) -> Encoding:
    """The format of values: VALUE FORMAT, or else FORMAT."""
    assert definition.format is not None
    assert definition.format.value is not None
    return definition.format.value


def subjects(definition: SinkDefinition) -> list[tuple[str, str, SchemaRegistry]]:
    """The subjects under which the sink registers schemas, with the schemas and registries."""
    topic, found = definition.options["topic"], []
    if value_encoding(definition).name == "avro":
        found.append((f"{topic}-value", value_schema(definition), _registry(definition, value_encoding(definition))))
    if definition.key and key_encoding(definition).name == "avro":
        found.append((f"{topic}-key", key_schema(definition), _registry(definition, key_encoding(definition))))
    return found


async def value_prefix(definition: SinkDefinition) -> bytes:
    """Registers the schema of values. Returns the header of a message in Confluent's wire format."""
    subject = f"{definition.options['topic']}-value"
    registry = _registry(definition, value_encoding(definition))
    return _frame(await registry.register(subject, value_schema(definition)))


async def value_form(definition: SinkDefinition) -> RecordForm:
    """The encoder of values, whose schema is registered. PgError, UpstreamError."""
    if value_encoding(definition).name == "json":
        return JsonForm(definition.encoded_columns)
    return AvroForm(definition.encoded_columns, await value_prefix(definition))


async def key_form(definition: SinkDefinition) -> RecordForm | None:
    """The encoder of keys, whose schema is registered; None without KEY. PgError, UpstreamError."""
    if not definition.key:
        return None
    columns = key_columns(definition)
    if key_encoding(definition).name == "json":
        return JsonForm(columns)
    registry = _registry(definition, key_encoding(definition))
    id = await registry.register(f"{definition.options['topic']}-key", key_schema(definition))
    return AvroForm(columns, _frame(id))


def _registry(definition: SinkDefinition, encoding: Encoding) -> SchemaRegistry:
    assert encoding.registry is not None
    return SchemaRegistry(definition.registries[encoding.registry])


def _record(name: str, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _frame(id: int) -> bytes:
    return b"\0" + id.to_bytes(4, "big")


def _invalid_name(error: ValueError) -> PgError:
    return PgError(
        SqlState.INVALID_NAME,
        str(error),
        hint="Use FORMAT JSON, or create the sink from a materialized view that renames the column.",
    )
