"""Bytes on their way out: a session's messages and rows, written as fast as the socket takes them.

Rows leave in chunks; between chunks the writer waits until the socket has taken what was written, so a client that does
not read holds back its own query and nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import Notice
from protocol.pgwire.messages import NoticeResponse
from server.dataflow.encoded import Data, Encode, encoded_chunks


class Transport(Protocol):
    """The listener's end: bytes out, and a pause when the socket takes no more."""

    def write(self, data: Data) -> None: ...
    def close(self) -> None: ...
    def close_when_read(self) -> None:
        """Closes when the client has closed its end, so that it can read the error that ends the connection."""
        ...

    async def drained(self) -> None: ...
    @property
    def is_full(self) -> bool:
        """Whether `drained` would wait."""
        ...

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

    async def write_table(self, table: pa.Table, encode: Encode) -> None:
        """Encodes and writes rows, chunk by chunk; returns when the socket can take the next."""
        async for data in encoded_chunks(table, encode):
            await self.write(data)

    async def write(self, data: Data) -> None:
        """Framed bytes, behind whatever is queued. They may be shared: they are not copied."""
        if data:
            self.flush()
            self.transport.write(data)
            await self.transport.drained()


def encode_table(encode: Callable[[pa.RecordBatch], bytes]) -> Encode:
    """The encoder of whole tables that an encoder of batches makes."""
    return lambda table: b"".join(map(encode, table.combine_chunks().to_batches()))
