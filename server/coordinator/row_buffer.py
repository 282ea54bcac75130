"""The rows that INSERTs of constants have added to one table, as Python scalars.

Many single-row INSERTs arrive in a pipeline, or from clients whose requests share a commit. An Arrow table for each of
them would cost more than the rest of the statement, so rows are converted together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog import spill
from catalog.batches import Payload
from catalog.layout import Layout
from catalog.log import INLINE_BYTES, Log

CONVERTED_ROWS = 4_096  # converted at once, in a few milliseconds; bounds the memory of rows as Python objects
FILE_BYTES = 8 << 20  # of converted rows in memory; they are written to a file when they become more
FEW_BYTES = 4_096  # rows of at most this size share a payload with those of other requests
CELL_BYTES, CHARACTER_BYTES = 16, 4  # the most that a value of fixed size and a character take in Arrow


class Inconvertible(Exception):
    """The rows of several requests could not be converted together. Those of a single request are the cause."""


class RowBuffer:
    """Rows of Python scalars, as `server.sql.constant` evaluates them.

    `schema`: that of the table's rows. `directory`: for the files of many rows.
    """

    def __init__(self, schema: pa.Schema, directory: Path | None = None) -> None:
        self.schema = schema
        self._directory = directory
        self.rows: list[tuple[Any, ...]] = []
        """The rows that are not converted yet."""
        self.bytes = 0
        """At least the size of all rows in Arrow; lists count as large."""
        self._converted: list[pa.Table] = []
        self._in_files = 0  # tables of `_converted`

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.rows += rows
        self.bytes += sum(map(_bytes, rows))
        if len(self.rows) >= CONVERTED_ROWS:
            self._convert()

    @property
    def is_few(self) -> bool:
        """Whether the rows share a payload with those of other requests."""
        return self.bytes <= FEW_BYTES and not self._converted

    @property
    def count(self) -> int:
        """The number of rows."""
        return self._converted_count + len(self.rows)

    @property
    def _converted_count(self) -> int:
        return sum(int(table.num_rows) for table in self._converted)

    def truncate(self, count: int) -> None:
        """Keeps only the first `count` rows, at least one."""
        converted = self._converted_count
        if count < converted:
            self._converted, self.rows = [self.table().slice(0, count)], []
            self._in_files = min(self._in_files, 1)
        else:
            del self.rows[count - converted :]
            if not converted:
                self.bytes = sum(map(_bytes, self.rows))

    def table(self) -> pa.Table:
        """All rows."""
        self._convert()
        return self._converted[0] if len(self._converted) == 1 else pa.concat_tables(self._converted)

    def so_far(self) -> pa.Table:
        """All rows, without converting the buffer: as `table`, but `is_few` does not change."""
        rows = [table_of(self.rows, self.schema)] if self.rows else []
        return pa.concat_tables([*self._converted, *rows])

    def _convert(self) -> None:
        rows, self.rows = self.rows, []
        if rows:
            self._converted.append(table_of(rows, self.schema))
        in_memory = self._converted[self._in_files :]
        if sum(table.nbytes for table in in_memory) > FILE_BYTES:
            self._converted[self._in_files :] = [spill.on_disk(pa.concat_tables(in_memory), self._directory)]
            self._in_files = len(self._converted)


def _bytes(row: tuple[Any, ...]) -> int:
    size = CELL_BYTES * len(row)
    for value in row:
        if isinstance(value, (str, bytes)):
            size += CHARACTER_BYTES * len(value)
        elif isinstance(value, list):
            size += FEW_BYTES
    return size


def table_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """At least one row of Python scalars as an Arrow table.

    For few rows, converting them as structs takes half as long as converting each column.
    """
    return pa.Table.from_struct_array(pa.array(rows, pa.struct(schema)))


def payloads_of(log: Log, buffers: Sequence[RowBuffer], layout: Layout | None = None) -> Iterator[Payload]:
    """Payloads of the rows of buffers with few rows of one table: not many, and none of them a file. Inconvertible."""
    schema = buffers[0].schema
    rows: list[tuple[Any, ...]] = []
    size = 0
    for buffer in buffers:
        if rows and size + buffer.bytes > INLINE_BYTES:
            yield _payload(log, rows, schema, layout)
            rows, size = [], 0
        rows += buffer.rows
        size += buffer.bytes
    yield _payload(log, rows, schema, layout)


def _payload(log: Log, rows: Sequence[tuple[Any, ...]], schema: pa.Schema, layout: Layout | None) -> Payload:
    try:
        table = table_of(rows, schema)
    except Exception as error:
        raise Inconvertible from error
    return log.prepare(table, layout)
