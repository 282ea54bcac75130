"""The layout of ENVELOPE NONE and UPSERT: the columns of keys, of values and of metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro.columns import AvroColumn, columns_of
from protocol.avro.decoder import Path, Wanted
from protocol.avro.schema import Record, parse_schema
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.kafka.avro_format import AvroFormat, PartFormat
from server.ingest.kafka.layouts.layout import KEY_FORMAT_HINT, Layout, Schemas, checked_names, encoded_key, is_framed
from server.ingest.kafka.layouts.metadata import included_columns
from server.ingest.kafka.layouts.refusals import unsupported
from server.ingest.kafka.registry import SchemaRegistry
from server.ingest.kafka.text_formats import BytesFormat, CsvFormat, JsonFormat, TextFormat


def key_value_layout(format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None]) -> Layout:
    """The layout of ENVELOPE NONE and UPSERT. PgError 0A000 if the format is not supported."""
    assert format.value is not None
    is_upsert = format.envelope is Envelope.UPSERT
    includes_key = [include for include in format.include if include.what == "key"]
    encoding = encoded_key(format, schemas)
    if is_upsert and encoding is None:
        raise unsupported("ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified", hint=KEY_FORMAT_HINT)
    if includes_key and encoding is None:
        raise unsupported(
            "INCLUDE KEY requires specifying KEY FORMAT .. VALUE FORMAT, got bare FORMAT", hint=KEY_FORMAT_HINT
        )
    columns: list[Column] = []
    key: list[tuple[int, Path]] = []
    key_format = None
    if encoding is not None and (is_upsert or includes_key):
        key_columns, key_format = _part(encoding, schemas.key, registry["key"], is_key=True)
        name = includes_key[0].name if includes_key else None
        if name is not None and len(key_columns) > 1:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "INCLUDE KEY AS is not supported for a key of several columns",
                hint="Leave out AS: each field of the key is a column.",
            )
        for column, path in key_columns:
            key.append((len(columns), path))
            columns.append(Column(name or column.name, column.type, column.nullable or not is_upsert))
    error = None
    if format.inline_errors is not None:
        if not is_upsert:
            raise unsupported(
                "VALUE DECODING ERRORS = INLINE requires ENVELOPE UPSERT",
                hint="Use ENVELOPE UPSERT, or omit VALUE DECODING ERRORS.",
            )
        error = len(columns)
        columns.append(Column(format.inline_errors, "text"))
    value_columns, value_format = _part(format.value, schemas.value, registry["value"], is_key=False)
    # The values of sinks and of many producers repeat the fields of the key.
    repeated = {(column.name, column.type) for column in columns} if is_upsert and error is None else set()
    values = []
    for column, path in value_columns:
        if (column.name, column.type) in repeated:
            continue
        values.append((len(columns), path))
        columns.append(Column(column.name, column.type, column.nullable or error is not None))
    metadata = included_columns(format, columns)
    return Layout(checked_names(columns), tuple(key), tuple(values), metadata, key_format, value_format, error)


def _part(
    encoding: Encoding, schema: str | None, registry: SchemaRegistry | None, *, is_key: bool
) -> tuple[list[tuple[Column, Path]], PartFormat]:
    """The columns of a key or a value with their paths, and the format."""
    match encoding.name:
        case "avro":
            assert schema is not None
            type = parse_schema(schema)
            if not isinstance(type, Record):
                raise unsupported(
                    "Avro schemas that are not records are not supported",
                    hint="Register a record that has the value as its field.",
                )
            return _columns(columns_of(type)), AvroFormat(Wanted.all_of(type), registry, type, is_framed(encoding))
        case "text":
            path = ("key" if is_key else "text",)
            return [(Column(path[0], "text", False), path)], TextFormat(path)
        case "bytes":
            path = ("key" if is_key else "data",)
            return [(Column(path[0], "bytea", False), path)], BytesFormat(path)
        case "json":
            path = ("key" if is_key else "data",)
            return [(Column(path[0], "jsonb", False), path)], JsonFormat(path)
        case "csv":
            count = _count(encoding)
            paths = tuple((f"{'key' if is_key else 'column'}{number}",) for number in range(1, count + 1))
            delimiter = encoding.options.get("delimited by", ",")
            if len(delimiter) != 1:
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, "CSV delimiter must be a single character")
            return [(Column(path[0], "text", False), path) for path in paths], CsvFormat(paths, delimiter)
    raise unsupported(
        f"FORMAT {encoding.name.upper()} is not supported for Kafka", hint="Use FORMAT AVRO, JSON, CSV, TEXT or BYTES."
    )


def _count(encoding: Encoding) -> int:
    text = encoding.options.get("columns", "")
    if not text.isdecimal() or not 1 <= int(text) <= 1_600:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            "FORMAT CSV requires the number of columns",
            hint="Write FORMAT CSV WITH n COLUMNS. Messages have no header.",
        )
    return int(text)


def _columns(columns: Sequence[AvroColumn]) -> list[tuple[Column, Path]]:
    return [(Column(c.name, c.meaning.type, c.nullable), (c.name,)) for c in columns]
