"""The messages before the first ReadyForQuery: the packets that open a connection, authentication, the cancel key."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, Self

from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.wire_format import (
    INT32,
    FixedMessage,
    cstring,
    finish,
    frame,
    need,
    read_int32,
    read_last_string,
    read_string,
    violation,
)
from protocol.pgwire.utf8 import decode_utf8

# The longest body of a startup packet: PostgreSQL's MAX_STARTUP_PACKET_LENGTH. Bounds the memory and time that the
# server spends on a client that has not yet identified itself.
STARTUP_BYTES_MAX = 10_000

PROTOCOL_VERSION = (3, 0)
CANCEL_REQUEST_CODE = (1234, 5678)
SSL_REQUEST_CODE = (1234, 5679)
GSSENC_REQUEST_CODE = (1234, 5680)

_VERSION = Struct(">HH")
_KEY = Struct(">II")


def _packet(code: tuple[int, int], *parts: bytes) -> bytes:
    return frame(b"", _VERSION.pack(*code), *parts)


@dataclass(slots=True)
class StartupMessage:
    """The client's parameters, such as user and database; a repeated name has its last value.

    `version` is (major, minor).
    """

    code: ClassVar[bytes] = b""
    parameters: dict[str, str]
    version: tuple[int, int] = PROTOCOL_VERSION

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(_VERSION.size, at, end)
        version: tuple[int, int] = _VERSION.unpack_from(data, at)
        at += _VERSION.size
        parameters = {}
        # As in PostgreSQL, the only error is that the strings do not end at the last byte.
        while at < end - 1 and data[at] != 0:
            stop = data.find(0, at, end)
            value_stop = data.find(0, stop + 1, end) if stop >= 0 else -1
            if value_stop < 0:
                break
            parameters[decode_utf8(data[at:stop])] = decode_utf8(data[stop + 1 : value_stop])
            at = value_stop + 1
        if at != end - 1 or data[at] != 0:
            raise violation("invalid startup packet layout: expected terminator as last byte")
        return cls(parameters, version)

    def serialize(self) -> bytes:
        pairs = (cstring(name) + cstring(value) for name, value in self.parameters.items())
        return _packet(self.version, *pairs, b"\0")


class SSLRequest(FixedMessage, code=b"", body=_VERSION.pack(*SSL_REQUEST_CODE)):
    """Asks for TLS; answered with one byte, `S` or `N`, outside the protocol."""

    __slots__ = ()
    request_code = SSL_REQUEST_CODE


class GSSENCRequest(FixedMessage, code=b"", body=_VERSION.pack(*GSSENC_REQUEST_CODE)):
    """Asks for GSSAPI encryption; answered with one byte, `G` or `N`, outside the protocol."""

    __slots__ = ()
    request_code = GSSENC_REQUEST_CODE


@dataclass(slots=True)
class CancelRequest:
    """Requests to cancel the statement of another connection. It is never answered."""

    code: ClassVar[bytes] = b""
    process_id: int
    secret_key: int

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        at += _VERSION.size
        need(_KEY.size, at, end)
        finish(at + _KEY.size, end)
        return cls(*_KEY.unpack_from(data, at))

    def serialize(self) -> bytes:
        return _packet(CANCEL_REQUEST_CODE, _KEY.pack(self.process_id, self.secret_key))


OpeningPacket = StartupMessage | SSLRequest | GSSENCRequest | CancelRequest


def parse_opening(data: bytes, at: int, end: int) -> OpeningPacket:
    """Parses the first packet of a connection, `data[at:end]` without its length word.

    PgError 0A000, FATAL, for an unsupported protocol version.
    """
    need(_VERSION.size, at, end)
    code = _VERSION.unpack_from(data, at)
    if code == CANCEL_REQUEST_CODE:
        return CancelRequest.parse(data, at, end)
    if code == SSL_REQUEST_CODE:
        return SSLRequest.parse(data, at, end)
    if code == GSSENC_REQUEST_CODE:
        return GSSENCRequest.parse(data, at, end)
    if code[0] != PROTOCOL_VERSION[0]:
        raise unsupported_version(code)
    return StartupMessage.parse(data, at, end)


def unsupported_version(code: tuple[int, int]) -> PgError:
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"unsupported frontend protocol {code[0]}.{code[1]}: server supports 3.0 to 3.0",
        severity=Severity.FATAL,
    )


@dataclass(slots=True)
class PasswordMessage:
    code: ClassVar[bytes] = b"p"
    password: str = field(repr=False)

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.password))


class AuthenticationOk(FixedMessage, code=b"R", body=INT32.pack(0)):
    """Authentication succeeded."""

    __slots__ = ()


class AuthenticationCleartextPassword(FixedMessage, code=b"R", body=INT32.pack(3)):
    """Requests a PasswordMessage."""

    __slots__ = ()


@dataclass(slots=True)
class NegotiateProtocolVersion:
    """Answers a client that requested a newer minor version or unknown protocol options (`_pq_.`)."""

    code: ClassVar[bytes] = b"v"
    unknown_options: tuple[str, ...]
    version: tuple[int, int] = PROTOCOL_VERSION

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(_VERSION.size, at, end)
        version: tuple[int, int] = _VERSION.unpack_from(data, at)
        count, at = read_int32(data, at + _VERSION.size, end)
        options = []
        for _ in range(count):
            option, at = read_string(data, at, end)
            options.append(option)
        finish(at, end)
        return cls(tuple(options), version)

    def serialize(self) -> bytes:
        options = map(cstring, self.unknown_options)
        return frame(self.code, _VERSION.pack(*self.version), INT32.pack(len(self.unknown_options)), *options)


@dataclass(slots=True)
class BackendKeyData:
    """The key that a CancelRequest for this connection must contain: two unsigned 32-bit numbers."""

    code: ClassVar[bytes] = b"K"
    process_id: int
    secret_key: int

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(_KEY.size, at, end)
        finish(at + _KEY.size, end)
        return cls(*_KEY.unpack_from(data, at))

    def serialize(self) -> bytes:
        return frame(self.code, _KEY.pack(self.process_id, self.secret_key))
