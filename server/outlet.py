"""Bytes on their way out: a session's messages and rows, written as fast as the socket takes them.

Rows leave in chunks; between chunks the writer waits until the socket has taken what was written, so a client that does
not read holds back its own query and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import Notice
from protocol.pgwire.messages import NoticeResponse

CHUNK_ROWS = 8_192  # encoded and written at once: some hundred KiB
THREAD_ROWS = 1_024  # chunks from this size on are encoded in a thread, so that others are answered meanwhile


class Transport(Protocol):
    """The listener's end: bytes out, and a pause when the socket takes no more."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    async def drained(self) -> None: ...
    def limit_input(self, waiting: int) -> None: ...
    def abort_if_stuck(self, seconds: float) -> None: ...


class Outlet:
    """A connection's outgoing side. Messages are queued by `connection.send` and leave with the next `flush`."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self.connection = connection
        self.transport = transport

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self.transport.write(data)

    def send_notices(self, notices: list[Notice]) -> None:
        """Queues them all, and empties the list."""
        self.connection.send(*map(NoticeResponse.of, notices))
        notices.clear()

    async def write_table(self, table: pa.Table, encode: Callable[[pa.RecordBatch], bytes]) -> None:
        """Encodes and writes a chunk; returns when the socket can take the next."""
        for batch in table.combine_chunks().to_batches():
            if batch.num_rows >= THREAD_ROWS:
                await self.write(await asyncio.to_thread(encode, batch))
            else:
                await self.write(encode(batch))

    async def write(self, data: bytes) -> None:
        """Framed bytes, behind whatever is queued. They may be shared: they are not copied."""
        if data:
            self.flush()
            self.transport.write(data)
            await self.transport.drained()


def encode_table(encode: Callable[[pa.RecordBatch], bytes]) -> Callable[[pa.Table], bytes]:
    """The encoder of whole tables that an encoder of batches makes."""
    return lambda table: b"".join(map(encode, table.combine_chunks().to_batches()))
