"""The snapshot of tables: COPY over several connections that all use one exported snapshot of PostgreSQL.

A table, or each partition of one, is read in ranges of `ctid` of about RANGE_BYTES. The texts are decoded by the
decoder of COPY FROM, and written to payload files of the log as soon as there are PAYLOAD_BYTES. Memory is therefore
bounded by CONNECTIONS x PAYLOAD_BYTES, and the rows are committed together at the end, whatever their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.batches import Payload
from catalog.ids import ObjectId
from catalog.log import Log
from protocol.pgwire.copy_errors import Place
from protocol.pgwire.copy_in import GATHER_BYTES, CopyDecoder, record_too_long
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.errors import PgError
from server.ingest.postgres.connection import Server
from server.ingest.postgres.protocol_guard import AnswerTooLongError
from server.ingest.postgres.publication import PublishedTable
from server.ingest.postgres.replication import identifier, quoted
from server.ingest.postgres.typed_rows import Layout
from server.ingest.source_kind import Statistics
from server.ingest.upstream import UpstreamError
from server.runtime.threads import all_or_none

CONNECTIONS = 4
RANGE_BYTES = 128 << 20  # of a table's file; a range is the unit of parallelism
PAYLOAD_BYTES = 64 << 20
ANSWER_S = 60.0  # for the queries before COPY
SILENT_S = 600.0  # without data of a COPY, which may wait for a lock, or find few rows of a table with a filter
PAGE_BYTES = range(1024, 32 * 1024 + 1)  # that PostgreSQL can be compiled with
PAGES_MAX = 1 << 32  # of a file

_RANGES_SINCE = 140_000  # the version from which a condition on ctid reads only that range
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}"
_FILES = """
SELECT format('%I.%I', n.nspname, c.relname) AS name, current_setting('block_size')::int AS page,
       pg_relation_size(c.oid) / current_setting('block_size')::int AS pages
FROM pg_partition_tree($1::oid::regclass) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf
UNION ALL
SELECT format('%I.%I', n.nspname, c.relname), current_setting('block_size')::int,
       pg_relation_size(c.oid) / current_setting('block_size')::int
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1::oid AND NOT EXISTS (SELECT FROM pg_partition_tree($1::oid::regclass))
"""


@dataclass(slots=True)
class TableCopy:
    """A table to copy, and its rows so far. `error`: why it cannot be copied; its rows are then incomplete."""

    id: ObjectId
    layout: Layout
    table: PublishedTable
    payloads: list[Payload] = field(default_factory=list)
    error: PgError | None = None

    def abandon(self, log: Log) -> None:
        """Removes the rows."""
        for payload in self.payloads:
            log.discard(payload)
        self.payloads = []

    def query(self, file: str, condition: str) -> str:
        """The query for the rows of one file of the table."""
        columns = ", ".join(identifier(column.name) for column in self.layout.columns)
        conditions = [part for part in (condition, f"({self.table.filter})" if self.table.filter else "") if part]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {columns} FROM ONLY {file}{where}"


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a table. `starts`: the pages at which its ranges begin; one without a condition if it is empty."""

    copy: TableCopy
    name: str
    starts: Sequence[int]

    def ranges(self) -> Iterator[_Range]:
        """The ranges. The last one has no end: the file may have grown."""
        starts = self.starts
        if len(starts) < 2:
            yield _Range(self.copy, self.copy.query(self.name, ""))
            return
        for number, start in enumerate(starts):
            end = f" AND ctid < '({starts[number + 1]},0)'" if number + 1 < len(starts) else ""
            yield _Range(self.copy, self.copy.query(self.name, f"ctid >= '({start},0)'{end}"))


@dataclass(frozen=True, slots=True)
class _Range:
    copy: TableCopy
    query: str


async def copy_tables(
    server: Server, snapshot: str, log: Log, statistics: Statistics, copies: Sequence[TableCopy]
) -> None:
    """Copies the tables as of an exported snapshot. UpstreamError if PostgreSQL cannot be read.

    An error of one table is in `TableCopy.error`. The caller commits or abandons the payloads, also after an error.
    """
    await _Copying(server, snapshot, log, statistics).run(copies)


class _Copying:
    def __init__(self, server: Server, snapshot: str, log: Log, statistics: Statistics) -> None:
        self._server = server
        self._begin = _BEGIN.format(quoted(snapshot, "'"))
        self._log = log
        self._statistics = statistics

    async def run(self, copies: Sequence[TableCopy]) -> None:
        first = await self._connect()
        try:
            async with self._answering():
                files = [file for copy in copies for file in await self._files(first, copy)]
        except BaseException:
            first.terminate()
            raise
        ranges = (part for file in files for part in file.ranges())  # a table of 32 TiB has 262,144
        others = max(0, min(CONNECTIONS, sum(max(1, len(file.starts)) for file in files)) - 1)
        workers = [asyncio.create_task(self._work(ranges, first))]
        workers += [asyncio.create_task(self._work(ranges)) for _ in range(others)]
        await all_or_none(workers)

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Limits the time of its body. Reports errors, and answers that PostgreSQL does not give."""
        try:
            async with asyncio.timeout(ANSWER_S):
                with self._server.understanding(), self._server.reporting():
                    yield
        except TimeoutError:
            raise UpstreamError(f"{self._server} does not answer") from None

    async def _connect(self) -> Any:
        connection = await self._server.connect()
        try:
            async with self._answering():
                await connection.execute(self._begin)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _files(self, connection: Any, copy: TableCopy) -> list[_File]:
        """The files of a table. ValueError if PostgreSQL has no such files."""
        files = []
        has_ranges = connection.get_server_version()[0] * 10_000 >= _RANGES_SINCE
        for name, page, pages in await connection.fetch(_FILES, copy.table.oid):
            if page not in PAGE_BYTES or not 0 <= pages <= PAGES_MAX:
                raise ValueError(page, pages)
            files.append(_File(copy, name, range(0, pages if has_ranges else 0, RANGE_BYTES // page)))
        return files

    async def _work(self, ranges: Iterator[_Range], connection: Any = None) -> None:
        """Copies ranges until there are no more."""
        if connection is None:
            connection = await self._connect()
        try:
            for part in ranges:
                if part.copy.error is not None:
                    continue
                await self._copy(part, connection)
                if part.copy.error is not None:  # the rest of the data is not read
                    connection.terminate()
                    connection = await self._connect()
            await connection.close(timeout=1)
        finally:
            connection.terminate()

    async def _copy(self, part: _Range, connection: Any) -> None:
        """Copies a range. If its data cannot be used, the reason is in `TableCopy.error`, and the rest is not read."""
        copy = part.copy
        rows = _RangeRows(copy, self._log, self._statistics)
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(SILENT_S) as silence:

                async def feed(data: bytes) -> None:
                    silence.reschedule(None)
                    await rows.feed(data)
                    silence.reschedule(clock() + SILENT_S)
                    if copy.error is not None:
                        raise _UnusableError

                with self._server.reporting(AnswerTooLongError):
                    await connection.copy_from_query(part.query, output=feed)
            await rows.finish()
        except _UnusableError:
            pass
        except AnswerTooLongError:
            copy.error = record_too_long()
        except TimeoutError:
            message = f'{self._server} does not send the rows of table "{copy.layout.reference}"'
            raise UpstreamError(message) from None


class _UnusableError(Exception):
    """The table has an error."""


class _RangeRows:
    """Decodes the data of one COPY, until the table has an error."""

    def __init__(self, copy: TableCopy, log: Log, statistics: Statistics) -> None:
        self._copy, self._log, self._statistics = copy, log, statistics
        columns = [(c.name, type) for c, type in zip(copy.layout.columns, copy.layout.types, strict=True)]
        self._decoder = CopyDecoder(columns, CopyOptions(), copy.layout.reference)
        self._data: list[bytes] = []
        self._size = 0
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    async def feed(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)
        if self._size >= GATHER_BYTES:
            await self._decode()

    async def finish(self) -> None:
        await self._decode()
        await self._take(self._decoder.finish)
        await self._write()

    async def _decode(self) -> None:
        data, self._data, self._size = self._data, [], 0
        await self._take(lambda: self._decoder.feed(b"".join(data)))

    async def _take(self, decode: Callable[[], list[pa.RecordBatch]]) -> None:
        """Adds the batches that a call of the decoder returns."""
        if self._copy.error is not None:
            return
        try:
            batches = await asyncio.to_thread(decode)
        except PgError as error:
            self._copy.error = self._unusable(error)
            return
        self._statistics.bytes_received += sum(batch.nbytes for batch in batches)
        rows = sum(batch.num_rows for batch in batches)
        self._statistics.messages_received += rows
        self._statistics.snapshot_records_staged = (self._statistics.snapshot_records_staged or 0) + rows
        self._batches += batches
        self._bytes += sum(batch.nbytes for batch in batches)
        if self._bytes >= PAYLOAD_BYTES:
            await self._write()

    def _unusable(self, error: PgError) -> PgError:
        """The error of the table for an error of COPY."""
        layout = self._copy.layout
        column = Place(layout.reference).column_of(error)
        for position, known in enumerate(layout.columns):
            if known.name == column:
                return layout.unusable(position, error)
        return PgError(error.sqlstate, f'table "{layout.reference}": {error.message}', hint=error.hint)

    async def _write(self) -> None:
        batches, self._batches, self._bytes = self._batches, [], 0
        if batches and self._copy.error is None:
            table = pa.Table.from_batches(batches)
            self._copy.payloads.append(await asyncio.to_thread(self._log.prepare, table))
