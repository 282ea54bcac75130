"""The layout of ENVELOPE MATERIALIZE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.objects.columns import Column
from catalog.source_definition import Format
from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import parse_schema
from protocol.cdcv2.avro_form import CdcSchema
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.ingest.kafka.changes_format import AvroChanges, JsonChanges
from server.ingest.kafka.layouts.layout import Layout, Schemas, checked_names, is_framed
from server.ingest.kafka.layouts.refusals import unsupported
from server.ingest.kafka.registry import SchemaRegistry
from server.ingest.kafka.text_formats import BytesFormat


def changes_layout(
    format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None], given: Sequence[Column]
) -> Layout:
    """The layout of ENVELOPE MATERIALIZE: the columns are the fields of the data. Those of JSON are `given`."""
    if format.key is not None or format.include:
        raise unsupported(
            "KEY FORMAT and INCLUDE are not supported with ENVELOPE MATERIALIZE: keys have no effect",
            hint="Omit KEY FORMAT and INCLUDE.",
        )
    if format.value is not None and format.value.name == "json":
        if not given:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "FORMAT JSON ENVELOPE MATERIALIZE requires the columns of the data",
                hint="Write the columns: CREATE SOURCE name (column type, ...).",
            )
        json = JsonChanges([EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in given])
        return Layout(checked_names(list(given)), (), (), (), None, BytesFormat(("data",)), changes=json)
    if format.value is None or format.value.name != "avro" or schemas.value is None:
        raise unsupported(
            "ENVELOPE MATERIALIZE of a Kafka source requires FORMAT AVRO or JSON",
            hint="Use FORMAT AVRO or FORMAT JSON.",
        )
    schema = CdcSchema.of(parse_schema(schemas.value))
    columns = [Column(c.name, c.meaning.type, c.nullable) for c in schema.columns()]
    changes = AvroChanges(schema, registry["value"], framed=is_framed(format.value))
    return Layout(checked_names(columns), (), (), (), None, BytesFormat(("data",)), changes=changes)
