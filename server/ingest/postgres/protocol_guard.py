"""Checks what another server sends, before asyncpg reads it.

asyncpg 0.32 follows a null pointer, which ends the process, if AuthenticationSASLContinue or AuthenticationSASLFinal
comes without the message before it. It keeps a message of up to 2 GiB until it is complete, all rows of an answer, and
the socket open if the server has not sent its version. It decodes an error of 65 MiB at once, which takes seconds.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

MESSAGE_BYTES_MAX = 64 * 1024  # of a message during the login
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Of the answer to a query. That to the query for 100,000 columns of a publication has about 10 MiB."""
ANSWER_MESSAGES_MAX = 200_000
"""Of the answer to a query, except COPY. A row of 7 bytes is an object of asyncpg, which takes more memory than the row
and time in each garbage collection."""
OTHER_BYTES_MAX = 1024 * 1024
"""Of a message that is no data, after the login. asyncpg needs 50 ms of processor time for an error of this length.
Less than this arrives at once, so that a longer message is incomplete when its header is seen."""
COPY_BYTES_MAX = 65 * 1024 * 1024
"""Of COPY, what arrives before a complete message has been taken. `CopyDecoder` refuses records of 64 MiB."""

_AUTHENTICATION, _PARAMETER, _READY = b"RSZ"
_DATA = b"dD"  # CopyData and DataRow
_SASL, _CONTINUE, _FINAL = 10, 11, 12
_AFTER = {struct.pack(">i", _SASL): _CONTINUE, struct.pack(">i", _CONTINUE): _FINAL}
_HEADER = struct.Struct(">ci")
_LENGTH = struct.Struct(">i")

_Answer = TypeVar("_Answer")


class AnswerTooLongError(asyncpg.InterfaceError):  # type: ignore[misc]
    """An answer is too long. The connection is closed."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the answer to a query has more than {limit}")


class MalformedAnswerError(asyncpg.InterfaceError):  # type: ignore[misc]
    """An answer cannot be read."""


class GuardedProtocol(asyncpg.protocol.Protocol):  # type: ignore[misc]
    """asyncpg's protocol. It aborts a connection whose login does not follow PostgreSQL's protocol.

    AnswerTooLongError for a later answer that is too long, MalformedAnswerError for one that asyncpg cannot read.
    """

    _transport: Any = None
    _login: bytes | None = b""  # the incomplete message at the end of what was received; None after the login
    _expected = 0  # _CONTINUE or _FINAL, if this message may follow
    _is_authenticated = False
    _has_version = False
    _bytes_max = ANSWER_BYTES_MAX
    _messages_max = sys.maxsize
    _bytes = 0  # that were received since the query, or since a message of COPY was taken
    _messages = 0  # whose headers were received since then
    _exceeded = ""  # the limit that an answer has exceeded
    _is_malformed = False
    _head = b""  # the incomplete header at the end of what was received after the login
    _left = 0  # bytes of the incomplete message at its end that were not received

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._login is None:
            self._answer_received(data)
            return
        data = self._login + data
        end = 0
        while self._login is not None and len(data) - end >= _HEADER.size:
            code, length = _HEADER.unpack_from(data, end)
            body = data[end + _HEADER.size : end + 1 + length]
            if not 4 <= length <= MESSAGE_BYTES_MAX or not self._follows(code[0], body):
                self._transport.abort()
                return
            if len(data) - end < 1 + length:
                break
            self._received(code[0], body)
            if code[0] == _READY:
                self._login = None
            end += 1 + length
        if self._login is None:
            if self._are_lengths_valid(data[end:]):
                super().data_received(data)
            return
        self._login = data[end:]
        if end:
            super().data_received(data[:end])

    def _follows(self, code: int, body: bytes) -> bool:
        """Whether a message may follow. `body` may be incomplete, and is checked again when it is complete."""
        if code == _READY:
            return self._is_authenticated and self._has_version
        if code != _AUTHENTICATION or len(body) < 4:
            return True
        (kind,) = struct.unpack_from(">i", body)
        return kind not in (_CONTINUE, _FINAL) or kind == self._expected

    def _received(self, code: int, body: bytes) -> None:
        if code == _AUTHENTICATION:
            self._expected = _AFTER.get(body[:4], 0)
            self._is_authenticated = body[:4] == bytes(4)
        elif code == _PARAMETER and body.startswith(b"server_version\0"):
            self._has_version = True

    def _answer_received(self, data: bytes) -> None:
        if self._exceeded or self._is_malformed:
            return
        self._bytes += len(data)
        if self._bytes > self._bytes_max:
            self._exceeded = f"{self._bytes_max} bytes"
        elif not self._are_lengths_valid(data):
            return
        elif self._messages > self._messages_max:
            self._exceeded = f"{self._messages_max} messages"
        if self._exceeded:
            self._transport.abort()
        else:
            super().data_received(data)

    def _are_lengths_valid(self, data: bytes) -> bool:
        """Whether no message is longer than it may be. Otherwise aborts the connection. Counts the messages.

        This takes 0.1 µs for each row of COPY.
        """
        data, at, last, count = self._head + data, self._left, -1, 0
        unpack, headers_end = _LENGTH.unpack_from, len(data) - _HEADER.size
        while at <= headers_end:
            last = at
            (length,) = unpack(data, at + 1)
            if length < 4:
                break
            at += 1 + length
            count += 1
        else:
            self._messages += count
            if last < 0 or data[last] in _DATA or length <= OTHER_BYTES_MAX:
                self._head, self._left = data[at:], max(0, at - len(data))
                return True
        self._is_malformed = True
        self._transport.abort()
        return False

    async def _answer(self, asked: Awaitable[_Answer], bytes_max: int, messages_max: int = sys.maxsize) -> _Answer:
        self._bytes, self._bytes_max = 0, bytes_max
        self._messages, self._messages_max = 0, messages_max
        try:
            return await asked
        except Exception:
            if self._exceeded:
                raise AnswerTooLongError(self._exceeded) from None
            if self._is_malformed:
                reason = f"less than 4 bytes, or more than {OTHER_BYTES_MAX} without being data"
                raise MalformedAnswerError(f"a message has a length of {reason}") from None
            raise

    async def _rows(self, asked: Awaitable[_Answer]) -> _Answer:
        """An answer that asyncpg reads itself, not a sink."""
        try:
            return await self._answer(asked, ANSWER_BYTES_MAX, ANSWER_MESSAGES_MAX)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            raise
        except Exception as error:  # of several types, such as those of struct and of asyncpg's buffer
            raise MalformedAnswerError(f"the answer to a query is malformed: {error}") from error

    # asyncpg sends each query by one of these methods.

    async def prepare(self, *args: Any, **options: Any) -> Any:
        return await self._rows(super().prepare(*args, **options))

    async def bind_execute(self, *args: Any, **options: Any) -> Any:
        return await self._rows(super().bind_execute(*args, **options))

    async def query(self, *args: Any, **options: Any) -> Any:
        return await self._rows(super().query(*args, **options))

    async def copy_in(self, *args: Any, **options: Any) -> Any:
        return await self._answer(super().copy_in(*args, **options), ANSWER_BYTES_MAX)

    async def copy_out(self, statement: str, sink: Callable[[bytes], Awaitable[None]], timeout: float | None) -> Any:
        async def counted(data: bytes) -> None:
            self._bytes = 0
            await sink(data)

        return await self._answer(super().copy_out(statement, counted, timeout), COPY_BYTES_MAX)


def install() -> None:
    """Makes `asyncpg.connect` use the guard."""
    asyncpg.protocol.Protocol = GuardedProtocol
