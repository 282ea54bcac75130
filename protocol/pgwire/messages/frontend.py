"""The messages of clients after the startup, and the union of all messages of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail
from protocol.pgwire.messages.sasl import SASLInitialResponse, SASLResponse
from protocol.pgwire.messages.startup import OpeningPacket, PasswordMessage
from protocol.pgwire.messages.wire_format import (
    INT32,
    FixedMessage,
    cstring,
    finish,
    frame,
    malformed,
    pack_counted,
    pack_values,
    read_counted,
    read_int32,
    read_last_string,
    read_string,
    read_values,
)

DescribeKind = Literal["S", "P"]  # prepared statement, portal


@dataclass(slots=True)
class Query:
    """A string of any number of statements to execute (simple query protocol)."""

    code: ClassVar[bytes] = b"Q"
    text: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.text))


@dataclass(slots=True)
class Parse:
    """Prepares one statement under `name` ("" is the unnamed one). For an OID of 0 the server infers the type."""

    code: ClassVar[bytes] = b"P"
    name: str
    text: str
    parameter_oids: tuple[int, ...] = ()

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        name, at = read_string(data, at, end)
        text, at = read_string(data, at, end)
        oids, at = read_counted("I", 4, data, at, end)
        finish(at, end)
        return cls(name, text, oids)

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.name), cstring(self.text), pack_counted("I", self.parameter_oids))


@dataclass(slots=True)
class Bind:
    """Creates a portal from a prepared statement and parameter values; None is NULL.

    Formats are as sent: an empty list means text for all, a single one applies to all, else there is one for each.
    """

    code: ClassVar[bytes] = b"B"
    portal: str
    statement: str
    parameter_formats: tuple[int, ...] = ()
    parameters: tuple[bytes | None, ...] = ()
    result_formats: tuple[int, ...] = ()

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        if end - at >= 8 and data[at] == 0:
            portal, at = "", at + 1  # the common case: the unnamed portal
        else:
            portal, at = read_string(data, at, end)
        statement, at = read_string(data, at, end)
        formats, at = read_counted("h", 2, data, at, end)
        parameters, at = read_values(data, at, end)
        result_formats, at = read_counted("h", 2, data, at, end)
        if at != end:
            finish(at, end)
        if len(formats) > 1 and len(formats) != len(parameters):
            # As in PostgreSQL this does not end the connection.
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message has {len(formats)} parameter formats but {len(parameters)} parameters",
            )
        return cls(portal, statement, formats, parameters, result_formats)

    def serialize(self) -> bytes:
        return frame(
            self.code,
            cstring(self.portal),
            cstring(self.statement),
            pack_counted("h", self.parameter_formats),
            pack_values(self.parameters),
            pack_counted("h", self.result_formats),
        )


def _kind_and_name(message: str, data: bytes, at: int, end: int) -> tuple[DescribeKind, str]:
    if at == end:
        raise malformed("no data left in message")
    kind = data[at]
    name = read_last_string(data, at + 1, end)
    if kind == 0x53:
        return "S", name
    if kind == 0x50:
        return "P", name
    raise malformed(f"invalid {message} message subtype {kind}")


@dataclass(slots=True)
class Describe:
    code: ClassVar[bytes] = b"D"
    kind: DescribeKind
    name: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(*_kind_and_name("DESCRIBE", data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, self.kind.encode(), cstring(self.name))


@dataclass(slots=True)
class Close:
    code: ClassVar[bytes] = b"C"
    kind: DescribeKind
    name: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(*_kind_and_name("CLOSE", data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, self.kind.encode(), cstring(self.name))


@dataclass(slots=True)
class Execute:
    """Executes a portal for at most `max_rows` rows; values <= 0 mean all rows."""

    code: ClassVar[bytes] = b"E"
    portal: str
    max_rows: int = 0

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        portal, at = read_string(data, at, end)
        max_rows, at = read_int32(data, at, end)
        finish(at, end)
        return cls(portal, max_rows)

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.portal), INT32.pack(self.max_rows))


class Sync(FixedMessage, code=b"S"):
    """Ends an extended-protocol batch; answered with ReadyForQuery."""

    __slots__ = ()


class Flush(FixedMessage, code=b"H"):
    """Requests that the server send all pending output."""

    __slots__ = ()


class Terminate(FixedMessage, code=b"X"):
    """Closes the connection."""

    __slots__ = ()


@dataclass(slots=True)
class FunctionCall:
    """The fast-path call of a function. Its body is not parsed because Tidewire refuses the call."""

    code: ClassVar[bytes] = b"F"
    body: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[at:end])

    def serialize(self) -> bytes:
        return frame(self.code, self.body)


FrontendMessage = (
    OpeningPacket
    | PasswordMessage
    | SASLInitialResponse
    | SASLResponse
    | Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Sync
    | Flush
    | Terminate
    | CopyData
    | CopyDone
    | CopyFail
    | FunctionCall
)
