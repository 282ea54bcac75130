"""The columns of an output, and where they are found in a message: in its key, its value or its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format, Include
from protocol.avro.columns import AvroColumn, columns_of
from protocol.avro.decoder import Path, Wanted
from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import NULL, SCHEMA_HINT, Field, Record, SchemaError, Union, parse_schema, without_null
from protocol.cdcv2.avro_form import CdcSchema
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_values import printed_jsonb
from protocol.pgwire.types import parse_type
from server.ingest.kafka.avro_format import AvroFormat, Part, PartFormat
from server.ingest.kafka.changes_format import AvroChanges, ChangesFormat, JsonChanges
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import CONNECTOR, Upstream, upstream_of
from server.ingest.kafka.registry import SchemaRegistry
from server.ingest.kafka.text_formats import BytesFormat, CsvFormat, JsonFormat, TextFormat

BEFORE, AFTER, SOURCE, OP, TRANSACTION = "before", "after", "source", "op", "transaction"
NUMBER = "data_collection_order"  # of a message in its transaction and table
_SOURCE_FIELDS = ("snapshot", "sequence", "lsn", "file", "pos", "row", "gtid")
_KEY_FORMAT = "Write KEY FORMAT ... VALUE FORMAT ..., or FORMAT AVRO with a registry that has a schema of the key."
_TRANSACTIONS = "Set provide.transaction.metadata of Debezium's connector to true."
_METADATA = {"partition": "int4", "offset": "int8", "timestamp": "timestamp", "headers": "jsonb"}


@dataclass(frozen=True, slots=True)
class Schemas:
    """The Avro schemas that an output's columns were derived from, as text. None: the format is not Avro."""

    key: str | None
    value: str | None


@dataclass(frozen=True)
class Layout:
    """The columns of an output. `key`, `values` and `metadata` give the position of each column and its origin.

    `key`: of the columns that are unique in the output, or of those of INCLUDE KEY. `values`: without those of `key`.
    `error`: the position of the column of VALUE DECODING ERRORS = INLINE. `origin`: the database that wrote a
    Debezium topic. `changes`: the format of ENVELOPE MATERIALIZE, which replaces the others.
    """

    columns: tuple[Column, ...]
    key: tuple[tuple[int, Path], ...]
    values: tuple[tuple[int, Path], ...]
    metadata: tuple[tuple[int, Include], ...]
    key_format: PartFormat | None
    value_format: PartFormat
    error: int | None = None
    origin: Upstream | None = None
    changes: ChangesFormat | None = None

    @property
    def schema(self) -> pa.Schema:
        """c0, c1, ..."""
        return pa.schema([pa.field(f"c{i}", parse_type(c.type).arrow) for i, c in enumerate(self.columns)])

    @property
    def key_positions(self) -> tuple[int, ...]:
        return tuple(position for position, _ in self.key)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[position].name for position in self.key_positions)

    def rows(self, messages: Messages, key: Part | None, value: Part, image: str | None = None) -> pa.Table:
        """One row of the output per message, arbitrary for those that failed. `image`: `before` or `after`."""
        arrays: list[pa.Array | None] = [None] * len(self.columns)
        for position, path in self.values:
            arrays[position] = value.columns[path if image is None else (image, *path[1:])]
        if key is not None and image is None:
            for position, path in self.key:
                arrays[position] = key.columns[path]
        for position, include in self.metadata:
            arrays[position] = _metadata(messages, include)
        schema = self.schema
        if self.error is not None:
            arrays[self.error] = pa.nulls(len(messages), schema.field(self.error).type)
        return pa.table(arrays, schema=schema)


def layout_of(
    format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None], columns: Sequence[Column] = ()
) -> Layout:
    """The layout of an output. PgError if the format is not supported.

    `registry`: for `key` and `value`. `columns`: the column list, if it has types.
    """
    assert format.value is not None
    try:
        if format.envelope in (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT):
            return _debezium(format, schemas, registry)
        if format.envelope is Envelope.MATERIALIZE:
            return _changes(format, schemas, registry, columns)
        return _flat(format, schemas, registry)
    except SchemaError as error:
        raise _unsupported(str(error), hint=SCHEMA_HINT) from None


def encoded_key(format: Format, schemas: Schemas) -> Encoding | None:
    """KEY FORMAT. A bare FORMAT AVRO with a registry applies to the key, too, if the key has a schema."""
    value = format.value
    if format.key is None and value is not None and value.name == "avro" and schemas.key is not None:
        return value
    return format.key


# -- NONE and UPSERT ------------------------------------------------------------------------------------------------


def _flat(format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None]) -> Layout:
    assert format.value is not None
    is_upsert = format.envelope is Envelope.UPSERT
    includes_key = [include for include in format.include if include.what == "key"]
    encoding = encoded_key(format, schemas)
    if is_upsert and encoding is None:
        raise _unsupported("ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified", hint=_KEY_FORMAT)
    if includes_key and encoding is None:
        raise _unsupported(
            "INCLUDE KEY requires specifying KEY FORMAT .. VALUE FORMAT, got bare FORMAT", hint=_KEY_FORMAT
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
            raise _unsupported(
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
    metadata = _included(format, columns)
    return Layout(_unique(columns), tuple(key), tuple(values), metadata, key_format, value_format, error)


def _part(
    encoding: Encoding, schema: str | None, registry: SchemaRegistry | None, *, is_key: bool
) -> tuple[list[tuple[Column, Path]], PartFormat]:
    """The columns of a key or a value with their paths, and the format."""
    match encoding.name:
        case "avro":
            assert schema is not None
            type = parse_schema(schema)
            if not isinstance(type, Record):
                raise _unsupported(
                    "Avro schemas that are not records are not supported",
                    hint="Register a record that has the value as its field.",
                )
            return _columns(columns_of(type)), AvroFormat(Wanted.all_of(type), registry, type, _is_framed(encoding))
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
    raise _unsupported(
        f"FORMAT {encoding.name.upper()} is not supported for Kafka", hint="Use FORMAT AVRO, JSON, CSV, TEXT or BYTES."
    )


def _count(encoding: Encoding) -> int:
    text = encoding.options.get("columns", "")
    if not text.isdecimal() or not 1 <= int(text) <= 1_600:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "FORMAT CSV requires the number of columns")
    return int(text)


def _is_framed(encoding: Encoding) -> bool:
    """Whether Avro messages begin with the id of their schema in the registry."""
    return encoding.options.get("confluent wire format", "true") != "false"


def _columns(columns: Sequence[AvroColumn]) -> list[tuple[Column, Path]]:
    return [(Column(c.name, c.meaning.type, c.nullable), (c.name,)) for c in columns]


# -- Debezium -------------------------------------------------------------------------------------------------------


def _debezium(format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None]) -> Layout:
    """The layout of ENVELOPE DEBEZIUM and DEBEZIUM UPSERT: the columns are those of the field `after`."""
    assert format.value is not None
    if format.value.name != "avro" or schemas.value is None:
        raise _unsupported(
            "ENVELOPE DEBEZIUM requires that VALUE FORMAT is set to AVRO",
            hint="Use FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
        )
    if any(include.what == "key" for include in format.include):
        raise _unsupported(
            "Cannot use INCLUDE KEY with ENVELOPE DEBEZIUM: Debezium values include all keys.", hint="Omit INCLUDE KEY."
        )
    retracts = format.envelope is Envelope.DEBEZIUM  # the rows of `before`, not those that have the key
    encoding, key_schema = _debezium_key_encoding(format, schemas)
    envelope, key_type = parse_schema(schemas.value), parse_schema(key_schema)
    if not isinstance(envelope, Record) or not isinstance(key_type, Record):
        raise _unsupported("ENVELOPE DEBEZIUM requires records as key and value", hint=CONNECTOR)
    after = _row_type(envelope, AFTER)
    fields: dict[str, Wanted | tuple[AvroColumn, ...]] = {AFTER: Wanted.all_of(after, (AFTER,), nullable=True)}
    origin = None
    if retracts:
        _check_before(envelope, after)
        fields[BEFORE] = Wanted.all_of(after, (BEFORE,), nullable=True)
        fields[OP] = _single(envelope, OP)
        origin, fields[SOURCE] = _source(envelope)
    found = [(Column(c.name, c.meaning.type, c.nullable), (AFTER, c.name)) for c in columns_of(after)]
    columns = [column for column, _ in found]
    key = _debezium_key(key_type, columns)
    metadata = _included(format, columns)
    if metadata and retracts:
        raise _unsupported(
            "INCLUDE is not supported with ENVELOPE DEBEZIUM: the metadata of a retracted row is not known",
            hint="Omit INCLUDE.",
        )
    return Layout(
        _unique(columns),
        key,
        tuple((position, path) for position, (_, path) in enumerate(found)),
        metadata,
        AvroFormat(Wanted.all_of(key_type), registry["key"], key_type, _is_framed(encoding)),
        AvroFormat(Wanted(fields), registry["value"], envelope, _is_framed(format.value)),
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
    raise _unsupported("ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified", hint=_KEY_FORMAT)


def _check_before(envelope: Record, after: Record) -> None:
    """PgError 0A000 if the messages have no field `before` with the columns of `after`."""
    if envelope.field(BEFORE) is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "'before' column missing from debezium input",
            hint="Use ENVELOPE DEBEZIUM UPSERT, which does not need it.",
        )
    if columns_of(_row_type(envelope, BEFORE)) != columns_of(after):
        raise _unsupported("'before' type differs from 'after' column", hint=CONNECTOR)


def _debezium_key(key_type: Record, columns: Sequence[Column]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The position of each field of the key among the columns of the value, and its path in the key. PgError 0A000."""
    names = [column.name for column in columns]
    key = []
    for column in columns_of(key_type):
        if column.name not in names:
            raise _unsupported(f"Value schema missing primary key column: {column.name}", hint=CONNECTOR)
        position = names.index(column.name)
        if columns[position].type != column.meaning.type:
            raise _unsupported(
                f'key and value column types do not match: column "{column.name}" has the type {column.meaning.type} '
                f"in the key and {columns[position].type} in the value",
                hint=CONNECTOR,
            )
        key.append((position, (column.name,)))
    return tuple(key)


def _field(record: Record, name: str) -> Field:
    found = record.field(name)
    if found is None:
        raise _unsupported(f"'{name}' column missing from debezium input", hint=CONNECTOR)
    return found


def _single(record: Record, name: str) -> tuple[AvroColumn, ...]:
    field = _field(record, name)
    nullable = field.type if isinstance(field.type, Union) else Union((NULL, field.type))
    return columns_of(Record(record.name, (Field(field.name, nullable, (None,)),)))


def _row_type(envelope: Record, name: str) -> Record:
    branches, _ = without_null(_field(envelope, name).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise _unsupported(f"'{name}' column must be of type record", hint=CONNECTOR)
    return branches[0]


def _source(envelope: Record) -> tuple[Upstream, Wanted]:
    """The database that wrote the messages, and what is wanted of `source` for their positions."""
    branches, nullable = without_null(_field(envelope, SOURCE).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise _unsupported("'source' column must be of type record", hint=CONNECTOR)
    source = branches[0]
    own = {name: _single(source, name) for name in _SOURCE_FIELDS if source.field(name) is not None}
    return upstream_of(source), Wanted(own, (SOURCE,), nullable)


def events_of(schemas: Schemas, format: Format, registry: SchemaRegistry | None) -> tuple[Upstream, AvroFormat]:
    """The database of a topic, and the format of the positions and transactions of its messages.

    PgError if the envelope is not Debezium's, or its messages do not name their transactions.
    """
    if format.envelope not in (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT) or schemas.value is None:
        raise _unsupported(
            "option TRANSACTION TOPIC requires an envelope of DEBEZIUM and FORMAT AVRO",
            hint="Use ENVELOPE DEBEZIUM and FORMAT AVRO, or omit TRANSACTION TOPIC.",
        )
    envelope = parse_schema(schemas.value)
    assert isinstance(envelope, Record)
    branches, _ = without_null(_field(envelope, TRANSACTION).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise _unsupported("'transaction' column must be of type record", hint=_TRANSACTIONS)
    origin, source = _source(envelope)
    transaction = Wanted({name: _single(branches[0], name) for name in ("id", NUMBER)}, (TRANSACTION,), True)
    wanted = Wanted({OP: _single(envelope, OP), SOURCE: source, TRANSACTION: transaction})
    return origin, AvroFormat(wanted, registry, envelope)


def ends_of(schema: str, registry: SchemaRegistry) -> AvroFormat:
    """The format of a topic of transaction metadata. PgError if the schema is another one."""
    record = parse_schema(schema)
    names = ("status", "id", "data_collections")
    if not isinstance(record, Record) or any(record.field(name) is None for name in names):
        raise _unsupported(
            "the topic of option TRANSACTION TOPIC has no transaction metadata of Debezium", hint=_TRANSACTIONS
        )
    return AvroFormat(Wanted({name: _single(record, name) for name in names}), registry, record)


# -- CDCv2 ----------------------------------------------------------------------------------------------------------


def _changes(
    format: Format, schemas: Schemas, registry: Mapping[str, SchemaRegistry | None], given: Sequence[Column]
) -> Layout:
    """The columns are the fields of the updates' data. Those of JSON are `given`."""
    if format.key is not None or format.include:
        raise _unsupported(
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
        return Layout(_unique(list(given)), (), (), (), None, BytesFormat(("data",)), changes=json)
    if format.value is None or format.value.name != "avro" or schemas.value is None:
        raise _unsupported(
            "ENVELOPE MATERIALIZE of a Kafka source requires FORMAT AVRO or JSON",
            hint="Use FORMAT AVRO or FORMAT JSON.",
        )
    schema = CdcSchema.of(parse_schema(schemas.value))
    columns = [Column(c.name, c.meaning.type, c.nullable) for c in schema.columns()]
    changes = AvroChanges(schema, registry["value"], framed=_is_framed(format.value))
    return Layout(_unique(columns), (), (), (), None, BytesFormat(("data",)), changes=changes)


# -- metadata -------------------------------------------------------------------------------------------------------


def _included(format: Format, columns: list[Column]) -> tuple[tuple[int, Include], ...]:
    """Appends the columns of INCLUDE to `columns`."""
    found = []
    for include in format.include:
        if include.what == "key":
            continue
        if include.what == "header":
            type, name = ("bytea" if include.is_bytes else "text"), include.name or include.header or "header"
        else:
            type, name = _METADATA[include.what], include.name or include.what
        found.append((len(columns), include))
        columns.append(Column(name, type, include.what == "header"))
    return tuple(found)


def _metadata(messages: Messages, include: Include) -> pa.Array:
    match include.what:
        case "partition":
            return pa.array(messages.partitions)
        case "offset":
            return pa.array(messages.offsets)
        case "timestamp":
            return pa.array(messages.timestamps * 1_000).view(pa.timestamp("us"))
    assert messages.headers is not None
    if include.what == "headers":
        return pa.array(
            [
                printed_jsonb([{"key": k, "value": None if v is None else "\\x" + v.hex()} for k, v in headers])
                for headers in messages.headers
            ],
            pa.string(),
        )
    last = [dict(headers).get(include.header or "") for headers in messages.headers]
    if include.is_bytes:
        return pa.array(last, pa.binary())
    return pa.array(
        [None if v is None else v.decode(errors="replace").replace("\0", "\ufffd") for v in last], pa.string()
    )


def reads_headers(format: Format) -> bool:
    """Whether the headers of messages are needed."""
    return any(include.what in ("header", "headers") for include in format.include)


def _unique(columns: list[Column]) -> tuple[Column, ...]:
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise PgError(
                SqlState.DUPLICATE_COLUMN,
                f'column "{column.name}" specified more than once',
                hint="Rename columns of the key with INCLUDE KEY AS, and metadata with INCLUDE ... AS.",
            )
        seen.add(column.name)
    return tuple(columns)


def _unsupported(message: str, *, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
