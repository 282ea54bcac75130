"""The layout of ENVELOPE DEBEZIUM and DEBEZIUM UPSERT: the columns are those of the field `after`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro.columns import AvroColumn, columns_of
from protocol.avro.decoder import Wanted
from protocol.avro.schema import NULL, Field, Record, Union, parse_schema, without_null
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.avro_format import AvroFormat
from server.ingest.kafka.layouts.layout import KEY_FORMAT_HINT, Layout, Schemas, checked_names, encoded_key, is_framed
from server.ingest.kafka.layouts.metadata import included_columns
from server.ingest.kafka.layouts.refusals import unsupported
from server.ingest.kafka.positions import CONNECTOR, Upstream, upstream_of
from server.ingest.kafka.registry import SchemaRegistry

BEFORE, AFTER, SOURCE, OP = "before", "after", "source", "op"
_SOURCE_FIELDS = ("snapshot", "sequence", "lsn", "file", "pos", "row", "gtid")


def debezium_layout(format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None]) -> Layout:
    """The layout of ENVELOPE DEBEZIUM and DEBEZIUM UPSERT: the columns are those of the field `after`."""
    assert format.value is not None
    if format.value.name != "avro" or schemas.value is None:
        raise unsupported(
            "ENVELOPE DEBEZIUM requires that VALUE FORMAT is set to AVRO",
            hint="Use FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
        )
    if any(include.what == "key" for include in format.include):
        raise unsupported(
            "Cannot use INCLUDE KEY with ENVELOPE DEBEZIUM: Debezium values include all keys.", hint="Omit INCLUDE KEY."
        )
    retracts = format.envelope is Envelope.DEBEZIUM  # the rows of `before`, not those that have the key
    encoding, key_schema = _debezium_key_encoding(format, schemas)
    envelope, key_type = parse_schema(schemas.value), parse_schema(key_schema)
    if not isinstance(envelope, Record) or not isinstance(key_type, Record):
        raise unsupported("ENVELOPE DEBEZIUM requires records as key and value", hint=CONNECTOR)
    after = _row_type(envelope, AFTER)
    fields: dict[str, Wanted | tuple[AvroColumn, ...]] = {AFTER: Wanted.all_of(after, (AFTER,), nullable=True)}
    origin = None
    if retracts:
        _check_before(envelope, after)
        fields[BEFORE] = Wanted.all_of(after, (BEFORE,), nullable=True)
        fields[OP] = single_field(envelope, OP)
        origin, fields[SOURCE] = source_of(envelope)
    found = [(Column(c.name, c.meaning.type, c.nullable), (AFTER, c.name)) for c in columns_of(after)]
    columns = [column for column, _ in found]
    key = _debezium_key(key_type, columns)
    metadata = included_columns(format, columns)
    if metadata and retracts:
        raise unsupported(
            "INCLUDE is not supported with ENVELOPE DEBEZIUM: the metadata of a retracted row is not known",
            hint="Omit INCLUDE.",
        )
    return Layout(
        checked_names(columns),
        key,
        tuple((position, path) for position, (_, path) in enumerate(found)),
        metadata,
        AvroFormat(Wanted.all_of(key_type), registry["key"], key_type, is_framed(encoding)),
        AvroFormat(Wanted(fields), registry["value"], envelope, is_framed(format.value)),
        origin=origin,
    )


def _debezium_key_encoding(format: Format, schemas: Schemas) -> tuple[Encoding, str]:
    """The encoding of the key and its Avro schema. PgError 0A000 if there is none."""
    encoding = encoded_key(format, schemas)
    if encoding is not None and encoding.name == "avro" and schemas.key is not None:
        return encoding, schemas.key
    if format.envelope is Envelope.DEBEZIUM:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "ENVELOPE DEBEZIUM requires a table with a primary key",
            detail="The messages have no key with an Avro schema.",
            hint="Add a primary key to the upstream table, or set message.key.columns of the connector.",
        )
    raise unsupported("ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified", hint=KEY_FORMAT_HINT)


def _check_before(envelope: Record, after: Record) -> None:
    """PgError 0A000 if the messages have no field `before` with the columns of `after`."""
    if envelope.field(BEFORE) is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "'before' column missing from debezium input",
            hint="Use ENVELOPE DEBEZIUM UPSERT, which does not need it.",
        )
    if columns_of(_row_type(envelope, BEFORE)) != columns_of(after):
        raise unsupported("'before' type differs from 'after' column", hint=CONNECTOR)


def _debezium_key(key_type: Record, columns: Sequence[Column]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The position of each field of the key among the columns of the value, and its path in the key. PgError 0A000."""
    names = [column.name for column in columns]
    key = []
    for column in columns_of(key_type):
        if column.name not in names:
            raise unsupported(f"Value schema missing primary key column: {column.name}", hint=CONNECTOR)
        position = names.index(column.name)
        if columns[position].type != column.meaning.type:
            raise unsupported(
                f'key and value column types do not match: column "{column.name}" has the type {column.meaning.type} '
                f"in the key and {columns[position].type} in the value",
                hint=CONNECTOR,
            )
        key.append((position, (column.name,)))
    return tuple(key)


def field_of(record: Record, name: str) -> Field:
    """Returns a field of a message. PgError 0A000 if it is missing."""
    found = record.field(name)
    if found is None:
        raise unsupported(f"'{name}' column missing from debezium input", hint=CONNECTOR)
    return found


def single_field(record: Record, name: str) -> tuple[AvroColumn, ...]:
    """Returns a field as the only column, which can be NULL. PgError 0A000 if it is missing."""
    field = field_of(record, name)
    nullable = field.type if isinstance(field.type, Union) else Union((NULL, field.type))
    return columns_of(Record(record.name, (Field(field.name, nullable, (None,)),)))


def _row_type(envelope: Record, name: str) -> Record:
    branches, _ = without_null(field_of(envelope, name).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise unsupported(f"'{name}' column must be of type record", hint=CONNECTOR)
    return branches[0]


def source_of(envelope: Record) -> tuple[Upstream, Wanted]:
    """The database that wrote the messages, and the fields of `source` that their positions need."""
    branches, nullable = without_null(field_of(envelope, SOURCE).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise unsupported("'source' column must be of type record", hint=CONNECTOR)
    source = branches[0]
    own = {name: single_field(source, name) for name in _SOURCE_FIELDS if source.field(name) is not None}
    return upstream_of(source), Wanted(own, (SOURCE,), nullable)
