"""A session's output: messages and rows, written as fast as the socket accepts them.

Rows are written in chunks. After each chunk the writer waits until the socket accepts more, so a client that does not
read delays only its own query. Few rows are written together with the messages around them.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from protocol.pgwire.connection import Connection, Phase
from protocol.pgwire.errors import Notice
from protocol.pgwire.messages.backend import NoticeResponse
from server.dataflow.stream.encoding import Data, Encode, encoded_chunks
from server.dataflow.stream.transport import Transport

QUEUED_BYTES = 8 * 1024  # of rows that wait for the messages after them; PostgreSQL's buffer is as large


class Sender:
    """A connection's output. Messages are queued by `connection.send` and written by the next `flush`.

    `is_due`: the client expects the queued messages before its next statement has ended, because ReadyForQuery is among
    them or it has sent Flush. Otherwise they are written together with what follows: each write wakes the client.
    """

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self.connection = connection
        self.transport = transport
        self.is_due = False
        self._queued_bytes = 0  # of rows since the last flush

    def flush(self) -> None:
        self.is_due = False
        self._queued_bytes = 0
        data = self.connection.data_to_send()
        if data:
            self.transport.write(data)

    def send_notices(self, notices: list[Notice]) -> None:
        """Queues all notices and empties the list."""
        self.connection.send(*map(NoticeResponse.of, notices))
        notices.clear()

    def send_now(self, notice: Notice) -> None:
        """Sends a notice before the current statement has ended. Omits it if the client does not read its answers."""
        if not self.transport.is_full and self.connection.phase is not Phase.CLOSED:
            self.connection.send(NoticeResponse.of(notice))
            self.flush()

    async def write_table(self, table: pa.Table, encode: Encode) -> None:
        """Encodes and writes rows chunk by chunk. Returns when the socket can accept more.

        The last chunk is only queued if it is small: call `flush` before waiting for more rows.
        """
        last = b""
        async for data in encoded_chunks(table, encode):
            await self.write(last)
            last = data
        if self._queued_bytes + len(last) > QUEUED_BYTES:
            await self.write(last)
        elif last:
            self._queued_bytes += len(last)
            self.connection.send_encoded(last)

    async def write(self, data: Data) -> None:
        """Writes framed bytes after all queued messages. The bytes may be shared and are not copied."""
        if data:
            self.flush()
            self.transport.write(data)
            await self.transport.drained()


def encode_table(encode: Callable[[pa.RecordBatch], bytes]) -> Encode:
    """Returns an encoder of tables, made from an encoder of record batches."""
    return lambda table: b"".join(map(encode, table.combine_chunks().to_batches()))
