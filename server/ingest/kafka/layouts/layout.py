"""The layout of an output."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Format, Include
from protocol.avro.decoder import Path
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.ingest.kafka.avro_format import Part, PartFormat
from server.ingest.kafka.changes_format import ChangesFormat
from server.ingest.kafka.layouts.metadata import metadata_column
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Upstream

KEY_FORMAT_HINT = "Write KEY FORMAT ... VALUE FORMAT ..., or FORMAT AVRO with a registry that has a schema of the key."


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
            arrays[position] = metadata_column(messages, include)
        schema = self.schema
        if self.error is not None:
            arrays[self.error] = pa.nulls(len(messages), schema.field(self.error).type)
        return pa.table(arrays, schema=schema)


def encoded_key(format: Format, schemas: Schemas) -> Encoding | None:
    """KEY FORMAT. A bare FORMAT AVRO with a registry applies to the key, too, if the key has a schema."""
    value = format.value
    if format.key is None and value is not None and value.name == "avro" and schemas.key is not None:
        return value
    return format.key


def is_framed(encoding: Encoding) -> bool:
    """Whether Avro messages begin with the id of their schema in the registry."""
    return encoding.options.get("confluent wire format", "true") != "false"


def checked_names(columns: list[Column]) -> tuple[Column, ...]:
    """Returns the columns. PgError 42701 if two have the same name."""
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
