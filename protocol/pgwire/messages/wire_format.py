"""The parts of messages: lengths, strings and counted lists. Defines their limits and the errors of malformed messages.

A reader (`read_*`) returns the value and the position after it.
"""

from __future__ import annotations

from struct import Struct, pack, unpack_from
from typing import ClassVar, Self

from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.utf8 import decode_utf8

# The longest message without user data, including its length word: PQ_SMALL_MESSAGE_LIMIT.
SMALL_MESSAGE_BYTES_MAX = 10_000
# Default limit of a Query, Parse, Bind, FunctionCall or CopyData. PostgreSQL's limit is 1 GiB. It is lower here because
# a message is in memory twice while it is assembled, and one process serves all clients.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
LARGE_MESSAGE_BYTES_MAX = 0x3FFFFFFE  # PQ_LARGE_MESSAGE_LIMIT: a greater length means lost synchronization

HEADER = Struct(">Bi")  # type byte, then the length, which counts itself but not the type byte
INT32 = Struct(">i")
SHORT = Struct(">h")
COUNT = Struct(">H")


def violation(message: str, detail: str | None = None) -> PgError:
    """The error that ends a connection after a violation of the protocol's framing or phases."""
    return PgError(SqlState.PROTOCOL_VIOLATION, message, detail=detail, severity=Severity.FATAL)


def malformed(message: str) -> PgError:
    """The error for a message with a malformed body. The connection continues, as in PostgreSQL.

    During startup `Connection` makes it FATAL.
    """
    return PgError(SqlState.PROTOCOL_VIOLATION, message)


def need(size: int, at: int, end: int) -> None:
    """PgError if fewer than `size` bytes are left."""
    if end - at < size:
        raise malformed("insufficient data left in message")


def finish(at: int, end: int) -> None:
    """PgError unless the whole body was read."""
    if at != end:
        raise malformed("invalid message format")


def read_string(data: bytes, at: int, end: int) -> tuple[str, int]:
    stop = data.find(0, at, end)
    if stop < 0:
        raise malformed("invalid string in message")
    return decode_utf8(data[at:stop]) if stop > at else "", stop + 1  # most names are empty


def read_last_string(data: bytes, at: int, end: int) -> str:
    text, at = read_string(data, at, end)
    finish(at, end)
    return text


def read_int32(data: bytes, at: int, end: int) -> tuple[int, int]:
    need(4, at, end)
    return INT32.unpack_from(data, at)[0], at + 4


def read_counted(letter: str, size: int, data: bytes, at: int, end: int) -> tuple[tuple[int, ...], int]:
    """Reads a 16-bit count, then that many integers of `size` bytes; `letter` is their struct code."""
    if end - at < 2:
        need(2, at, end)
    (count,) = COUNT.unpack_from(data, at)
    at += 2
    if not count:
        return (), at
    if count == 1 and size == 2 and end - at >= 2:
        return SHORT.unpack_from(data, at), at + 2
    need(count * size, at, end)
    return unpack_from(f">{count}{letter}", data, at), at + count * size


def read_values(data: bytes, at: int, end: int) -> tuple[tuple[bytes | None, ...], int]:
    """Reads a 16-bit count, then that many values, each preceded by its 32-bit length; length -1 is NULL."""
    need(2, at, end)
    (count,) = COUNT.unpack_from(data, at)
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        need(4, at, end)
        (length,) = INT32.unpack_from(data, at)
        at += 4
        if length == -1:
            values.append(None)
            continue
        if not 0 <= length <= end - at:
            raise malformed("insufficient data left in message")
        values.append(data[at : at + length])
        at += length
    return tuple(values), at


def frame(code: bytes, *parts: bytes) -> bytes:
    """A complete message: the type byte, the length and the body."""
    body = b"".join(parts)
    return code + INT32.pack(len(body) + 4) + body


def cstring(text: str) -> bytes:
    return text.encode() + b"\0"


def pack_counted(letter: str, numbers: tuple[int, ...]) -> bytes:
    return pack(f">H{len(numbers)}{letter}", len(numbers), *numbers)


def pack_values(values: tuple[bytes | None, ...]) -> bytes:
    parts = [COUNT.pack(len(values))]
    for value in values:
        parts.append(INT32.pack(-1 if value is None else len(value)))
        if value is not None:
            parts.append(value)
    return b"".join(parts)


class FixedMessage:
    """A message with constant bytes, serialized once. Instances of the same class are equal."""

    __slots__ = ()
    code: ClassVar[bytes]
    _body: ClassVar[bytes]
    _wire: ClassVar[bytes]

    def __init_subclass__(cls, code: bytes, body: bytes = b"") -> None:
        cls.code = code
        cls._body = body
        cls._wire = frame(code, body)

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        if data[at:end] != cls._body:
            raise malformed("invalid message format")
        return cls()

    def serialize(self) -> bytes:
        return self._wire

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
