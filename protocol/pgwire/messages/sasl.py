"""The messages of SASL authentication. The contents of SCRAM's messages are opaque here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from protocol.pgwire.messages.wire_format import (
    INT32,
    cstring,
    finish,
    frame,
    malformed,
    need,
    read_int32,
    read_string,
)

SASL_BYTES_MAX = 1_024  # of a client's message, as in PostgreSQL (PG_MAX_SASL_MESSAGE_LENGTH)

_SASL, _CONTINUE, _FINAL = 10, 11, 12


def _read_code(code: int, data: bytes, at: int, end: int) -> int:
    found, at = read_int32(data, at, end)
    if found != code:
        raise malformed("invalid message format")
    return at


@dataclass(slots=True)
class AuthenticationSASL:
    """Requests SASL authentication by one of the mechanisms, the preferred one first."""

    code: ClassVar[bytes] = b"R"
    mechanisms: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        at = _read_code(_SASL, data, at, end)
        names = []
        while True:
            name, at = read_string(data, at, end)
            if not name:
                break
            names.append(name)
        finish(at, end)
        return cls(tuple(names))

    def serialize(self) -> bytes:
        return frame(self.code, INT32.pack(_SASL), *map(cstring, self.mechanisms), b"\0")


@dataclass(slots=True)
class AuthenticationSASLContinue:
    """A challenge, which the client answers with a SASLResponse."""

    code: ClassVar[bytes] = b"R"
    data: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[_read_code(_CONTINUE, data, at, end) : end])

    def serialize(self) -> bytes:
        return frame(self.code, INT32.pack(_CONTINUE), self.data)


@dataclass(slots=True)
class AuthenticationSASLFinal:
    """The last data of the exchange, by which the client authenticates the server."""

    code: ClassVar[bytes] = b"R"
    data: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[_read_code(_FINAL, data, at, end) : end])

    def serialize(self) -> bytes:
        return frame(self.code, INT32.pack(_FINAL), self.data)


@dataclass(slots=True)
class SASLInitialResponse:
    """Selects a mechanism. `data`: the first message of the mechanism, None if it has none."""

    code: ClassVar[bytes] = b"p"
    mechanism: str
    data: bytes | None

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        mechanism, at = read_string(data, at, end)
        length, at = read_int32(data, at, end)
        if length == -1:
            finish(at, end)
            return cls(mechanism, None)
        if length < 0:
            raise malformed("insufficient data left in message")
        need(length, at, end)
        finish(at + length, end)
        return cls(mechanism, data[at:end])

    def serialize(self) -> bytes:
        length = -1 if self.data is None else len(self.data)
        return frame(self.code, cstring(self.mechanism), INT32.pack(length), self.data or b"")


@dataclass(slots=True)
class SASLResponse:
    """Answers an AuthenticationSASLContinue."""

    code: ClassVar[bytes] = b"p"
    data: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[at:end])

    def serialize(self) -> bytes:
        return frame(self.code, self.data)
