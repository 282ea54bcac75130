"""A connection to the PostgreSQL of a sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg
import pyarrow as pa

from protocol.pgwire.encode import CopyFileEncoder
from protocol.pgwire.types import PgType
from server.ingest.postgres.connection import LOST, Server
from server.ingest.upstream import UpstreamError

COPY_ROWS = 50_000  # rows that are encoded at a time, while those before are sent
CLOSE_S = 2.0
SETTINGS = {"standard_conforming_strings": "on", "synchronous_commit": "on"}  # a frontier that was read is never lost

_HINTS = {
    "23505": "Either two rows of the collection have the same key, or somebody else has inserted the row there. "
    "Delete one of them, or create the sink with another KEY, or without.",
}  # by the SQLSTATE of errors for which PostgreSQL has no hint


class Connection:
    """Methods raise PgError or UpstreamError with PostgreSQL's message, and close the connection."""

    def __init__(self, server: Server, connection: Any) -> None:
        self._server = server
        self._connection = connection

    @classmethod
    async def open(cls, server: Server) -> Connection:
        """UpstreamError if the server cannot be reached."""
        return cls(server, await server.connect(asyncpg.Connection, **SETTINGS))

    async def close(self) -> None:
        """If a statement was interrupted, cancels it there: one that waits for a lock would keep its own locks."""
        try:
            await self._connection.close(timeout=CLOSE_S)
        except (asyncpg.PostgresError, *LOST):
            self._connection.terminate()

    async def execute(self, statements: str) -> int:
        """Executes statements in one round trip. Returns the number of rows that the last one changed."""
        with self._reporting():
            tag = str(await self._connection.execute(statements))
        last = tag.rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def rows(self, query: str, *values: object) -> Sequence[Any]:
        with self._reporting():
            found: Sequence[Any] = await self._connection.fetch(query, *values)
        return found

    async def copy(self, rows: pa.Table, types: Sequence[PgType], schema: str, table: str, names: Sequence[str]) -> int:
        """Inserts rows, which may be more than fit into memory. Returns the number of bytes sent."""
        sent = 0

        async def content() -> AsyncIterator[bytes]:
            nonlocal sent
            async for part in _encoded(rows, types):
                sent += len(part)
                yield part

        with self._reporting():
            await self._connection.copy_to_table(
                table, schema_name=schema, columns=list(names), source=content(), format="binary"
            )
        return sent

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Converts errors of asyncpg in its body."""
        try:
            yield
        except asyncpg.PostgresError as error:
            detail = f" ({error.detail.rstrip('.')})" if getattr(error, "detail", None) else ""
            text = f"{error.args[0]}{detail}"
            state = error.sqlstate or ""
            raise self._server.error(state, text, getattr(error, "hint", None) or _HINTS.get(state)) from error
        except LOST as error:
            raise UpstreamError(f"{self._server}: {error or type(error).__name__}") from error


async def _encoded(rows: pa.Table, types: Sequence[PgType]) -> AsyncIterator[bytes]:
    """The content of a file of COPY BINARY, in parts. The next part is encoded while one is sent."""
    encoder = CopyFileEncoder(types)

    def encode(start: int) -> bytes:
        batches = rows.slice(start, COPY_ROWS).combine_chunks().to_batches()
        return b"".join(map(encoder.encode, batches))

    yield CopyFileEncoder.HEADER
    if rows.num_rows <= COPY_ROWS:
        yield await asyncio.to_thread(encode, 0) if rows.num_rows > 1_000 else encode(0)
    else:
        starts = range(0, rows.num_rows, COPY_ROWS)
        encoding = asyncio.ensure_future(asyncio.to_thread(encode, 0))
        try:
            for start in starts:
                part = await encoding
                if start + COPY_ROWS < rows.num_rows:
                    encoding = asyncio.ensure_future(asyncio.to_thread(encode, start + COPY_ROWS))
                yield part
        finally:
            await asyncio.wait([encoding])
    yield CopyFileEncoder.TRAILER
