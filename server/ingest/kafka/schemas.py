"""The schemas and registries that a format names."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.ids import ObjectId
from catalog.source_definition import Encoding, Format
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.layouts.layout import Schemas
from server.ingest.kafka.registry import SchemaRegistry
from server.ingest.source_definition import Options

Registries = Mapping[str, SchemaRegistry | None]


def registries_of(format: Format, options: Mapping[ObjectId, Options]) -> Registries:
    """The registries of `key` and `value`. A bare FORMAT applies to both."""
    clients: dict[ObjectId, SchemaRegistry] = {}

    def client(encoding: Encoding | None) -> SchemaRegistry | None:
        if encoding is None or encoding.registry is None:
            return None
        if encoding.registry not in clients:
            clients[encoding.registry] = SchemaRegistry(options[encoding.registry])
        return clients[encoding.registry]

    return {"key": client(format.key or format.value), "value": client(format.value)}


async def fetched_schemas(topic: str, format: Format, registries: Registries) -> Schemas:
    """The latest schemas of a topic's keys and values, or those of USING SCHEMA. PgError if one is missing."""
    value = await _fetched(topic, "value", format.value, registries)
    key = await _fetched(topic, "key", format.key or format.value, registries)
    if format.value is not None and format.value.name == "avro" and value is None:
        raise _missing(f"{topic}-value")
    if format.key is not None and format.key.name == "avro" and key is None:
        raise _missing(f"{topic}-key")
    return Schemas(key, value)


async def _fetched(topic: str, part: str, encoding: Encoding | None, registries: Registries) -> str | None:
    if encoding is None or encoding.name != "avro":
        return None
    if (registry := registries[part]) is not None:
        return await registry.latest(f"{topic}-{part}")
    return encoding.schema


def _missing(subject: str) -> PgError:
    return PgError(
        SqlState.UNDEFINED_OBJECT,
        f'schema registry has no subject "{subject}"',
        hint="Produce a message with a schema, or register the schema, before creating the source.",
    )
