"""Decodes the parts of a backfill, in a thread or in a Spark task (with the Python Data Source API).

A part is a file, a partition of a Kafka topic, or a range of a PostgreSQL table. Threads and tasks use the decoders of
the sources.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import confluent_kafka
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from catalog.objects.columns import Column
from catalog.payloads import Payloads
from catalog.source_definition import Encoding, Format
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.types import parse_type
from server.ingest.files.file_format import Parquet, Text
from server.ingest.kafka.layouts.by_envelope import layout_of
from server.ingest.kafka.layouts.layout import Schemas
from server.ingest.kafka.messages import Messages
from server.ingest.source_definition import SourceDefinition

READ_BYTES = 8 << 20
READ_MESSAGES = 20_000
COLUMNS = (
    Column("id", "int8"),
    Column("name", "text"),
    Column("at", "timestamp"),
    Column("quantity", "int4"),
    Column("price", "float8"),
    Column("note", "text"),
)
TYPES = [(column.name, parse_type(column.type)) for column in COLUMNS]
ROWS = pa.schema([(f"c{number}", type.arrow) for number, (_, type) in enumerate(TYPES)])
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}


@dataclass
class Part(InputPartition):
    """`place`: a path, or the address and the topic of the partition `number`, or a DSN and a condition."""

    kind: str
    place: tuple[str, ...]
    number: int = 0


def read(part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of a part."""
    if part.kind in ("parquet", "csv"):
        yield from _of_file(part)
    elif part.kind == "kafka":
        yield from _of_kafka(part)
    else:
        yield from asyncio.run(_of_postgres(part))


def _of_file(part: Part) -> Iterator[pa.RecordBatch]:
    path, position = Path(part.place[0]), 0
    definition = SourceDefinition("file", {}, columns=COLUMNS)
    format = Parquet(COLUMNS) if part.kind == "parquet" else Text.csv(definition, {})
    while True:
        tables, end = format.read(path, position, READ_BYTES)
        for table in tables:
            yield from table.to_batches()
        if end == position:
            return
        position = end


def _of_kafka(part: Part) -> Iterator[pa.RecordBatch]:
    address, topic = part.place
    bare = Encoding("avro", schema="", options={"confluent wire format": "false"})
    layout = layout_of(Format(value=bare), Schemas(None, json.dumps(VALUE)), {"key": None, "value": None})
    decoder = asyncio.run(layout.value_format.decoder(pa.array([], pa.binary())))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "backfill", "check.crcs": True})
    partition = confluent_kafka.TopicPartition(topic, part.number, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
    position = 0
    while position < end:
        messages = Messages.of(consumer.consume(min(READ_MESSAGES, end - position), 10.0))
        rows = layout.rows(messages, None, decoder.decode(messages.values))
        position += len(messages)
        yield from rows.to_batches()
    consumer.close()


async def _of_postgres(part: Part) -> list[pa.RecordBatch]:
    dsn, condition = part.place
    url = urlsplit(dsn)
    connection = await asyncpg.connect(host=url.hostname, port=url.port, user="postgres", database=url.path[1:])
    decoder = CopyDecoder(TYPES, CopyOptions(), "t")
    found: list[pa.RecordBatch] = []

    async def feed(data: bytes) -> None:
        found.extend(decoder.feed(data))

    await connection.copy_from_query(f"SELECT * FROM backfill WHERE {condition}", output=feed)
    await connection.close()
    return found + decoder.finish()


def written(part: Part, directory: str) -> tuple[str, int, int]:
    """Writes the rows of a part as a payload file of the log. Returns its name, its checksum and its number of rows."""
    payloads, rows = Payloads(Path(directory)), 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in read(part):
            rows += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, schema=ROWS)

    name = payloads.write(ROWS, counted())
    return name, zlib.crc32(payloads.read(name)), rows


class Backfill(DataSource):
    """`parts`: JSON. `directory`: where tasks write payload files. Without it, they return the rows."""

    @classmethod
    def name(cls) -> str:
        return "backfill"

    def schema(self) -> Any:
        return "name string, crc long, rows long" if "directory" in self.options else from_arrow_schema(ROWS)

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._directory = options.get("directory")
        self._parts = json.loads(options["parts"])

    def partitions(self) -> list[Part]:
        return [Part(kind, tuple(place), number) for kind, place, number in self._parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        if self._directory is None:
            yield from read(partition)
        else:
            yield written(partition, self._directory)
