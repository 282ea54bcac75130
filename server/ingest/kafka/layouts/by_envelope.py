"""The layout of an output for the envelope of its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.objects.columns import Column
from catalog.source_definition import Envelope, Format
from protocol.avro.schema import SCHEMA_HINT, SchemaError
from server.ingest.kafka.layouts.changes import changes_layout
from server.ingest.kafka.layouts.debezium import debezium_layout
from server.ingest.kafka.layouts.key_value import key_value_layout
from server.ingest.kafka.layouts.layout import Layout, Schemas
from server.ingest.kafka.layouts.refusals import unsupported
from server.ingest.kafka.registry import SchemaRegistry


def layout_of(
    format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None], columns: Sequence[Column] = ()
) -> Layout:
    """The layout of an output. PgError if the format is not supported.

    `registry`: for `key` and `value`. `columns`: the column list, if it has types.
    """
    assert format.value is not None
    try:
        if format.envelope in (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT):
            return debezium_layout(format, schemas, registry)
        if format.envelope is Envelope.MATERIALIZE:
            return changes_layout(format, schemas, registry, columns)
        return key_value_layout(format, schemas, registry)
    except SchemaError as error:
        raise unsupported(str(error), hint=SCHEMA_HINT) from None
