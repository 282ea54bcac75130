"""A replication connection: commands, then the stream of a logical replication slot.

asyncpg connects and authenticates with the startup parameter `replication`. It cannot speak the replication protocol
(extended queries are refused there, and it does not know CopyBoth), so its transport gets another protocol afterwards.
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import numpy as np

from protocol.pgoutput import BadMessage
from protocol.pgoutput.rows import Positions
from protocol.pgoutput.stream import HEADER_BYTES, KEEPALIVE, WAL_DATA, parse_keepalives, status_update, wal_end
from protocol.pgwire.errors import PgError
from server.ingest.postgres.connection import Server
from server.ingest.upstream import UpstreamError

BUFFER_BYTES = 4 << 20  # received and not taken; the connection is not read while there are more
TAKE_BYTES = 1 << 20  # taken at once, about 10,000 messages: bounds the time on the event loop
MESSAGE_BYTES_MAX = 1 << 30  # the greatest value that PostgreSQL has
UNREAD_BYTES_MAX = 1 << 20  # of status updates that the server has not read
ANSWER_BYTES_MAX = 4 << 20  # of the answer to a command; the longest is the history of a timeline

_COPY_DATA: Final = ord("d")
_ROW_DESCRIPTION, _DATA_ROW, _READY = ord("T"), ord("D"), ord("Z")
_COPY_BOTH, _COPY_DONE, _ERROR = ord("W"), ord("c"), ord("E")
_LENGTH = struct.Struct(">I")

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of `pgoutput`, `data[start:end]` each. `wal_end`: the greatest end of the server's WAL that was seen.

    `keepalive`: everything that committed before it has been sent with these messages or earlier; 0 if there is none.
    """

    data: bytes
    starts: Positions
    ends: Positions
    wal_end: int
    keepalive: int


class Replication:
    """Use `open`. One task calls `query`, then `start`, then `receive`; `confirm` may be called at any time."""

    def __init__(self, server: Server, connection: Any, transport: asyncio.Transport) -> None:
        self._server = server
        self._connection = connection  # owns the transport
        self._transport = transport
        self._messages = _Messages(transport, transport.get_protocol())
        self._confirmed = 0
        self._answered = 0  # bytes of the answer to a command
        self._is_silent = False
        transport.set_protocol(self._messages)

    @classmethod
    async def open(cls, server: Server) -> Replication:
        """UpstreamError if the server cannot be reached."""
        connection = await server.connect(_Connection, replication="database")
        return cls(server, connection, connection.transport)

    async def query(self, command: str) -> list[Row]:
        """The rows of a replication command. PgError, UpstreamError or BadMessage if it fails."""
        self._send(b"Q", command.encode() + b"\0")
        self._answered = 0
        rows: list[Row] = []
        failure: PgError | UpstreamError | None = None
        while True:
            kind, body = await self._next()
            if kind == _DATA_ROW:
                rows.append(_values(body))
            elif kind == _ERROR:
                failure = self._error(body)
            elif kind == _READY:
                if failure is not None:
                    raise failure
                return rows

    async def start(self, slot: str, publication: str, lsn: str) -> None:
        """Starts to stream transactions whose commit record is at `lsn` or later. Raises as `query` does."""
        options = f"proto_version '1', publication_names {quoted(identifier(publication), chr(39))}"
        self._send(b"Q", f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {lsn} ({options})".encode() + b"\0")
        self._answered = 0
        failure: PgError | UpstreamError | None = None
        while True:
            kind, body = await self._next()
            if kind == _ERROR:
                failure = self._error(body)
            elif kind == _COPY_BOTH:
                return
            elif kind == _READY:
                raise failure or self._lost()

    async def receive(self, *, wait: bool) -> Received | None:
        """The messages that have arrived, about TAKE_BYTES at most. None if there are none and `wait` is false.

        PgError or UpstreamError if the stream has ended, BadMessage if it does not follow the protocol.
        """
        while True:
            received = self._take()
            if received is not None or not wait:
                return received
            self._check()
            await self._messages.more()

    def _take(self) -> Received | None:
        buffer = self._messages.buffer
        size = len(buffer)
        positions: list[int] = []
        position, unpack = 0, _LENGTH.unpack_from
        while size - position >= 5 and position < TAKE_BYTES:
            end = position + 1 + unpack(buffer, position + 1)[0]
            if end < position + 5:
                raise BadMessage("the length of a message is less than 4")
            if end > size:
                break
            positions.append(position)
            position = end
        if not positions:
            return None
        data = bytes(buffer[:position])
        begins, ends = np.array(positions, np.int64), np.array([*positions[1:], position], np.int64)
        content = np.frombuffer(data, np.uint8)
        is_copy = content[begins] == _COPY_DATA
        inner = content.take(begins + 5, mode="clip")  # a message may have only five bytes
        is_wal, is_keepalive = is_copy & (inner == WAL_DATA), is_copy & (inner == KEEPALIVE)
        for other in np.flatnonzero(~(is_wal | is_keepalive)).tolist():
            self._check_kind(data[begins[other] : ends[other]])
        self._messages.taken(position)
        known = keepalive = 0
        if is_keepalive.any():
            said = parse_keepalives(content, begins[is_keepalive] + 5, ends[is_keepalive])
            known = keepalive = said.wal_end
            if said.reply_requested:
                self.confirm(self._confirmed)
        starts, ends = begins[is_wal] + 5 + HEADER_BYTES, ends[is_wal]
        if (starts >= ends).any():
            raise BadMessage("WAL data without a message")
        if len(starts):
            last = int(starts[-1])
            known = max(known, wal_end(data[last - HEADER_BYTES : last]))
        return Received(data, starts, ends, known, keepalive)

    def _check_kind(self, message: bytes) -> None:
        """Raises if the message ends the stream. Notices and the like are ignored."""
        if message[0] == _ERROR:
            raise self._error(message[5:])
        if message[0] == _COPY_DONE:
            raise self._lost()

    def confirm(self, lsn: int) -> None:
        """Reports that everything before `lsn` is on disk here: the server may remove that WAL."""
        self._confirmed = lsn
        self._update(asks=False)

    def confirm_again(self) -> int:
        """Tells the server that this connection is alive. It ends one that is silent for `wal_sender_timeout`.

        Asks for an answer. Returns how often it has asked since something was received, or reading was paused.
        """
        self._update(asks=True)
        if not self._messages.paused:
            self._messages.asked += 1
        return self._messages.asked

    def abandon(self) -> None:
        """Ends the connection because the server does not answer. `receive` raises UpstreamError."""
        self._is_silent = True
        self._transport.abort()

    def _update(self, *, asks: bool) -> None:
        """Sends a status update. Ends the connection if the server asks for them and does not read them."""
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.abandon()
        self._send(b"d", status_update(self._confirmed, time.time_ns() // 1_000, asks=asks))

    def close(self) -> None:
        """May be called twice."""
        self._connection.terminate()

    def _send(self, kind: bytes, body: bytes) -> None:
        if not self._messages.lost and not self._is_silent:
            self._transport.write(kind + _LENGTH.pack(len(body) + 4) + body)

    async def _next(self) -> tuple[int, bytes]:
        """The next message, while the stream has not started."""
        buffer = self._messages.buffer
        while True:
            if len(buffer) >= 5:
                end = 1 + _LENGTH.unpack_from(buffer, 1)[0]
                if end < 5:
                    raise BadMessage("the length of a message is less than 4")
                if self._answered + end > ANSWER_BYTES_MAX:
                    raise BadMessage(f"the answer to a command has more than {ANSWER_BYTES_MAX} bytes")
                if len(buffer) >= end:
                    self._answered += end
                    kind, body = buffer[0], bytes(buffer[5:end])
                    self._messages.taken(end)
                    return kind, body
            self._check()
            await self._messages.more()

    def _check(self) -> None:
        """Raises if the connection was lost, or BadMessage if the message that arrives is too large."""
        buffer = self._messages.buffer
        if self._messages.lost and not buffer:
            raise self._lost()
        if len(buffer) >= 5 and _LENGTH.unpack_from(buffer, 1)[0] > MESSAGE_BYTES_MAX + HEADER_BYTES + 4:
            raise BadMessage(f"a message has more than {MESSAGE_BYTES_MAX} bytes")
        if self._messages.lost and self._messages.waited_in_vain:
            raise self._lost()

    def _lost(self) -> UpstreamError:
        if self._is_silent:
            return UpstreamError(f"{self._server} does not answer")
        return UpstreamError(f"the connection to {self._server} was closed")

    def _error(self, body: bytes) -> PgError | UpstreamError:
        fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
        return self._server.error(fields.get(b"C", ""), fields.get(b"M", "unknown error"), fields.get(b"H"))


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection whose transport is known. asyncpg passes it to the class that `connect` is given."""

    __slots__ = ("transport",)

    def __init__(self, protocol: Any, transport: asyncio.Transport, *args: Any) -> None:
        super().__init__(protocol, transport, *args)
        self.transport = transport


class _Messages(asyncio.Protocol):
    """Buffers what arrives. `more` waits for further data.

    `owner`: the protocol of asyncpg's connection, which must know that the connection was lost: `terminate` would write
    to the closed transport otherwise, which uvloop refuses.
    """

    def __init__(self, transport: asyncio.Transport, owner: asyncio.BaseProtocol) -> None:
        self.buffer = bytearray()
        self.lost = False
        self.waited_in_vain = False  # `more` returned without further data
        self.paused = False  # reading is
        self.asked = 0  # for an answer since something was received, or reading was paused
        self._transport = transport
        self._owner = owner
        self._arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.asked = 0
        if len(self.buffer) > BUFFER_BYTES and not self.paused:
            self.paused = True
            self._transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> None:
        """The transport closes itself."""

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._owner.connection_lost(error)
        self._arrived.set()

    def taken(self, size: int) -> None:
        """Removes the first `size` bytes."""
        del self.buffer[:size]
        if self.paused and len(self.buffer) <= BUFFER_BYTES:
            self._resume()

    async def more(self) -> None:
        """Waits for data that the buffer does not have yet, or the loss of the connection."""
        if self.paused:  # by one message that is larger than the buffer
            self._resume()
        size = len(self.buffer)
        self._arrived.clear()
        if not self.lost:
            await self._arrived.wait()
        self.waited_in_vain = len(self.buffer) == size

    def _resume(self) -> None:
        self.paused = False
        self.asked = 0
        if not self.lost:
            self._transport.resume_reading()


def _values(body: bytes) -> Row:
    """The values of a DataRow in text format."""
    values: list[str | None] = []
    try:
        (count,) = struct.unpack_from(">H", body)
        position = 2
        for _ in range(count):
            (length,) = struct.unpack_from(">i", body, position)
            position += 4
            values.append(None if length < 0 else body[position : position + length].decode())
            position += max(length, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise BadMessage(f"malformed DataRow: {error}") from None
    return tuple(values)


def quoted(text: str, quote: str) -> str:
    """The text between quotes. Each quote in it is doubled."""
    return quote + text.replace(quote, 2 * quote) + quote


def identifier(name: str) -> str:
    """A quoted identifier."""
    return quoted(name, '"')
