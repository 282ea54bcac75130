"""The stored form of a batch: its row in the catalog, and its payload."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from catalog.layout import Layout
from catalog.payloads import parsed
from catalog.spans import Spans

STORED = "id, collection, time, rows, bytes, file, payload_crc, row_crc, times"
"""All columns of a batch's row except the payload."""
INSERT = (
    "INSERT INTO batches (collection, time, rows, bytes, times, file, payload_crc, row_crc, payload) "
    "SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM collections WHERE id = ?"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The row of one batch in the catalog. `bytes` is the stored size of the payload.

    `time` is the greatest of its times. `spans` maps its times to rows; None if all rows are at `time`.
    `payload_crc` is None if the payload was written before format 4, which introduced checksums.
    """

    id: int
    collection: ObjectId
    time: Timestamp
    rows: int
    bytes: int
    file: str | None
    payload_crc: int | None = None
    spans: Spans | None = field(default=None, compare=False)

    @property
    def first_time(self) -> Timestamp:
        return self.time if self.spans is None else Timestamp(int(self.spans.times[0]))

    def range(self, lower: int, upper: int) -> tuple[int, int]:
        """The range of its rows with `lower <= time < upper`."""
        if lower <= self.first_time and self.time < upper:
            return 0, self.rows
        return (0, 0) if self.spans is None else self.spans.rows(lower, upper)

    def part(self, table: pa.Table, lower: int, upper: int) -> pa.Table:
        """The rows of its payload's table with `lower <= time < upper`."""
        start, end = self.range(lower, upper)
        return table if (start, end) == (0, table.num_rows) else table.slice(start, end - start)

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        """Its times with `lower <= time < upper`, ascending."""
        if self.spans is not None:
            return self.spans.between(lower, upper)
        return [self.time] if lower <= self.time < upper else []


@dataclass(frozen=True, slots=True)
class Payload:
    """Stored rows or changes that no committed transaction names yet.

    `crc` is the checksum of the stored bytes; `spans` as in `Batch`. `layout`: how the columns are stored; None if they
    are stored under the names that they have in `table`.
    """

    table: pa.Table
    inline: bytes | None
    file: str | None
    bytes: int
    crc: int
    spans: Spans | None = None
    layout: Layout | None = None

    @property
    def stored_table(self) -> pa.Table:
        """The table with the names of the stored columns."""
        return self.table if self.layout is None else with_names(self.table, self.layout.stored(self.table.schema))


def row_crc(
    collection: str, time: object, rows: object, bytes_: object, file: object, payload_crc: object, times: bytes | None
) -> int:
    """The checksum of a batch's row without its payload."""
    text = repr((collection, time, rows, bytes_, file, payload_crc)).encode()
    return zlib.crc32(times or b"", zlib.crc32(text))


def batch_of(
    id: int,
    collection: ObjectId,
    time: Timestamp,
    rows: int,
    bytes_: int,
    file: str | None,
    payload_crc: int | None,
    stored_crc: int | None,
    times: bytes | None,
) -> Batch | None:
    """The batch that a row of STORED describes, None if the row's checksum is wrong."""
    if payload_crc is None and stored_crc is None and times is None:  # written before format 4
        return Batch(id, collection, time, rows, bytes_, file)
    if row_crc(collection, time, rows, bytes_, file, payload_crc, times) != stored_crc:
        return None
    spans = Spans.load(times) if times is not None else None
    return Batch(id, collection, time, rows, bytes_, file, payload_crc, spans)


def stored_values(collection: ObjectId, time: Timestamp, payload: Payload) -> tuple[object, ...]:
    """The parameters of INSERT."""
    rows, times = payload.table.num_rows, payload.spans.dump() if payload.spans is not None else None
    crc = row_crc(collection, time, rows, payload.bytes, payload.file, payload.crc, times)
    return time, rows, payload.bytes, times, payload.file, payload.crc, crc, payload.inline, collection


def inserted_batch(id: int, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch:
    rows, bytes_, spans = payload.table.num_rows, payload.bytes, payload.spans
    return Batch(id, collection, time, rows, bytes_, payload.file, payload.crc, spans)


def verify(batch: Batch, content: pa.Buffer) -> None:
    """ValueError if a payload's checksum is wrong. Batches written before format 4 have none and are not verified."""
    if batch.payload_crc is not None and (found := zlib.crc32(content)) != batch.payload_crc:
        raise ValueError(f"The payload's checksum is {found:08x}, but {batch.payload_crc:08x} was written")


def decoded(batch: Batch, content: pa.Buffer) -> pa.Table:
    """A payload's table. pa.ArrowException or ValueError if it is malformed or has another number of rows."""
    if batch.file is not None:
        table = parsed(content)
    else:
        table = pa.ipc.open_stream(content).read_all()
        if batch.payload_crc is None:
            table.validate(full=True)
    if table.num_rows != batch.rows:
        raise ValueError(f"The payload has {table.num_rows} rows, but {batch.rows} were written")
    return table


def with_names(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the names of the columns of `schema`, which has the same types."""
    return table if table.schema.names == schema.names else pa.table(table.columns, schema=schema)
