"""The messages of PostgreSQL's frontend/backend protocol 3.0 and their encodings.

Source: PostgreSQL manual, chapters 55.2 and 55.7; postmaster.c, postgres.c and pqformat.c for limits and wording.

Every class has:
- `code`, its type byte; empty for the four packets that may open a connection;
- `parse(data, at, end)`: parses the body `data[at:end]`, the bytes after the length word. A malformed body raises
  PgError 08P01 with PostgreSQL's message (severity ERROR: the framing is intact), text that is not UTF-8 raises 22021;
- `serialize()`: the complete message with type byte and length.

Messages must not be modified. They are slotted dataclasses that are not frozen, because freezing costs one
`object.__setattr__` call per field of every message. Messages without fields and ReadyForQuery are serialized once, at
import. Rows are usually sent as bytes by `Connection.send_encoded`; `DataRow` is for rows that do not come from Arrow.

Format codes are 0 for text, 1 for binary.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, pack, unpack_from
from typing import ClassVar, Literal, Self

from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.types import PgType

# The longest body of a startup packet: PostgreSQL's MAX_STARTUP_PACKET_LENGTH. Bounds the memory and time that the
# server spends on a client that has not yet identified itself.
STARTUP_BYTES_MAX = 10_000
# The longest message without user data, including its length word: PQ_SMALL_MESSAGE_LIMIT.
SMALL_MESSAGE_BYTES_MAX = 10_000
# Default limit of a Query, Parse, Bind, FunctionCall or CopyData. PostgreSQL's limit is 1 GiB. It is lower here because
# a message is in memory twice while it is assembled, and one process serves all clients.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
LARGE_MESSAGE_BYTES_MAX = 0x3FFFFFFE  # PQ_LARGE_MESSAGE_LIMIT: a greater length means lost synchronization

PROTOCOL_VERSION = (3, 0)
CANCEL_REQUEST_CODE = (1234, 5678)
SSL_REQUEST_CODE = (1234, 5679)
GSSENC_REQUEST_CODE = (1234, 5680)

HEADER = Struct(">Bi")  # type byte, then the length, which counts itself but not the type byte
INT32 = Struct(">i")
_SHORT = Struct(">h")
_COUNT = Struct(">H")
_VERSION = Struct(">HH")
_KEY = Struct(">II")
_FIELD = Struct(">IhIhih")

DescribeKind = Literal["S", "P"]  # prepared statement, portal
TransactionStatus = Literal["I", "T", "E"]  # idle, in a transaction block, in a failed one


def violation(message: str, detail: str | None = None) -> PgError:
    """The error that ends a connection after a violation of the protocol's framing or phases."""
    return PgError(SqlState.PROTOCOL_VIOLATION, message, detail=detail, severity=Severity.FATAL)


def malformed(message: str) -> PgError:
    """The error for a message with a malformed body. The connection continues, as in PostgreSQL.

    During startup `Connection` makes it FATAL.
    """
    return PgError(SqlState.PROTOCOL_VIOLATION, message)


def decode_utf8(data: bytes) -> str:
    """`data` as text. PgError 22021 shows the first invalid byte sequence, as PostgreSQL does."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        lead = data[error.start]
        # The length implied by the lead byte, even if the sequence is invalid: pg_utf_mblen().
        length = 2 if lead & 0xE0 == 0xC0 else 3 if lead & 0xF0 == 0xE0 else 4 if lead & 0xF8 == 0xF0 else 1
        shown = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.start + length])
        raise PgError(
            SqlState.CHARACTER_NOT_IN_REPERTOIRE, f'invalid byte sequence for encoding "UTF8": {shown}'
        ) from None


# --- reading and writing the parts of a body; readers return the value and the position after it ---


def _need(size: int, at: int, end: int) -> None:
    if end - at < size:
        raise malformed("insufficient data left in message")


def _finish(at: int, end: int) -> None:
    if at != end:
        raise malformed("invalid message format")


def _string(data: bytes, at: int, end: int) -> tuple[str, int]:
    stop = data.find(0, at, end)
    if stop < 0:
        raise malformed("invalid string in message")
    return decode_utf8(data[at:stop]) if stop > at else "", stop + 1  # most names are empty


def _last_string(data: bytes, at: int, end: int) -> str:
    text, at = _string(data, at, end)
    _finish(at, end)
    return text


def _int32(data: bytes, at: int, end: int) -> tuple[int, int]:
    _need(4, at, end)
    return INT32.unpack_from(data, at)[0], at + 4


def _counted(letter: str, size: int, data: bytes, at: int, end: int) -> tuple[tuple[int, ...], int]:
    """Reads a 16-bit count, then that many integers of `size` bytes; `letter` is their struct code."""
    if end - at < 2:
        _need(2, at, end)
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    if not count:
        return (), at
    if count == 1 and size == 2 and end - at >= 2:
        return _SHORT.unpack_from(data, at), at + 2
    _need(count * size, at, end)
    return unpack_from(f">{count}{letter}", data, at), at + count * size


def _values(data: bytes, at: int, end: int) -> tuple[tuple[bytes | None, ...], int]:
    """Reads a 16-bit count, then that many values, each preceded by its 32-bit length; length -1 is NULL."""
    _need(2, at, end)
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        _need(4, at, end)
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


def _frame(code: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return code + INT32.pack(len(body) + 4) + body


def _packet(code: tuple[int, int], *parts: bytes) -> bytes:
    return _frame(b"", _VERSION.pack(*code), *parts)


def _cstring(text: str) -> bytes:
    return text.encode() + b"\0"


def _pack_counted(letter: str, numbers: tuple[int, ...]) -> bytes:
    return pack(f">H{len(numbers)}{letter}", len(numbers), *numbers)


def _pack_values(values: tuple[bytes | None, ...]) -> bytes:
    parts = [_COUNT.pack(len(values))]
    for value in values:
        parts.append(INT32.pack(-1 if value is None else len(value)))
        if value is not None:
            parts.append(value)
    return b"".join(parts)


class _Bare:
    """A message with constant bytes, serialized once. Instances of the same class are equal."""

    __slots__ = ()
    code: ClassVar[bytes]
    _body: ClassVar[bytes]
    _wire: ClassVar[bytes]

    def __init_subclass__(cls, code: bytes, body: bytes = b"") -> None:
        cls.code = code
        cls._body = body
        cls._wire = _frame(code, body)

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


# --- frontend: the packets that may open a connection ---


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
        _need(_VERSION.size, at, end)
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
        pairs = (_cstring(name) + _cstring(value) for name, value in self.parameters.items())
        return _packet(self.version, *pairs, b"\0")


class SSLRequest(_Bare, code=b"", body=_VERSION.pack(*SSL_REQUEST_CODE)):
    """Asks for TLS; answered with one byte, `S` or `N`, outside the protocol."""

    __slots__ = ()
    request_code = SSL_REQUEST_CODE


class GSSENCRequest(_Bare, code=b"", body=_VERSION.pack(*GSSENC_REQUEST_CODE)):
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
        _need(_KEY.size, at, end)
        _finish(at + _KEY.size, end)
        return cls(*_KEY.unpack_from(data, at))

    def serialize(self) -> bytes:
        return _packet(CANCEL_REQUEST_CODE, _KEY.pack(self.process_id, self.secret_key))


OpeningPacket = StartupMessage | SSLRequest | GSSENCRequest | CancelRequest


def parse_opening(data: bytes, at: int, end: int) -> OpeningPacket:
    """Parses the first packet of a connection, `data[at:end]` without its length word.

    PgError 0A000, FATAL, for an unsupported protocol version.
    """
    _need(_VERSION.size, at, end)
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


# --- frontend ---


@dataclass(slots=True)
class PasswordMessage:
    code: ClassVar[bytes] = b"p"
    password: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(_last_string(data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.password))


@dataclass(slots=True)
class Query:
    """A string of any number of statements to execute (simple query protocol)."""

    code: ClassVar[bytes] = b"Q"
    text: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(_last_string(data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.text))


@dataclass(slots=True)
class Parse:
    """Prepares one statement under `name` ("" is the unnamed one). For an OID of 0 the server infers the type."""

    code: ClassVar[bytes] = b"P"
    name: str
    text: str
    parameter_oids: tuple[int, ...] = ()

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        name, at = _string(data, at, end)
        text, at = _string(data, at, end)
        oids, at = _counted("I", 4, data, at, end)
        _finish(at, end)
        return cls(name, text, oids)

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.name), _cstring(self.text), _pack_counted("I", self.parameter_oids))


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
            portal, at = _string(data, at, end)
        statement, at = _string(data, at, end)
        formats, at = _counted("h", 2, data, at, end)
        parameters, at = _values(data, at, end)
        result_formats, at = _counted("h", 2, data, at, end)
        if at != end:
            _finish(at, end)
        if len(formats) > 1 and len(formats) != len(parameters):
            # As in PostgreSQL this does not end the connection.
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message has {len(formats)} parameter formats but {len(parameters)} parameters",
            )
        return cls(portal, statement, formats, parameters, result_formats)

    def serialize(self) -> bytes:
        return _frame(
            self.code,
            _cstring(self.portal),
            _cstring(self.statement),
            _pack_counted("h", self.parameter_formats),
            _pack_values(self.parameters),
            _pack_counted("h", self.result_formats),
        )


def _kind_and_name(message: str, data: bytes, at: int, end: int) -> tuple[DescribeKind, str]:
    if at == end:
        raise malformed("no data left in message")
    kind = data[at]
    name = _last_string(data, at + 1, end)
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
        return _frame(self.code, self.kind.encode(), _cstring(self.name))


@dataclass(slots=True)
class Close:
    code: ClassVar[bytes] = b"C"
    kind: DescribeKind
    name: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(*_kind_and_name("CLOSE", data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, self.kind.encode(), _cstring(self.name))


@dataclass(slots=True)
class Execute:
    """Executes a portal for at most `max_rows` rows; values <= 0 mean all rows."""

    code: ClassVar[bytes] = b"E"
    portal: str
    max_rows: int = 0

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        portal, at = _string(data, at, end)
        max_rows, at = _int32(data, at, end)
        _finish(at, end)
        return cls(portal, max_rows)

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.portal), INT32.pack(self.max_rows))


class Sync(_Bare, code=b"S"):
    """Ends an extended-protocol batch; answered with ReadyForQuery."""

    __slots__ = ()


class Flush(_Bare, code=b"H"):
    """Requests that the server send all pending output."""

    __slots__ = ()


class Terminate(_Bare, code=b"X"):
    """Closes the connection."""

    __slots__ = ()


@dataclass(slots=True)
class CopyFail:
    code: ClassVar[bytes] = b"f"
    message: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(_last_string(data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.message))


@dataclass(slots=True)
class FunctionCall:
    """The fast-path call of a function. Its body is not parsed because Tidewire refuses the call."""

    code: ClassVar[bytes] = b"F"
    body: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[at:end])

    def serialize(self) -> bytes:
        return _frame(self.code, self.body)


# --- both sides ---


@dataclass(slots=True)
class CopyData:
    """Part of a COPY stream, in either direction. A client may split the stream anywhere, even within a row."""

    code: ClassVar[bytes] = b"d"
    data: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[at:end])

    def serialize(self) -> bytes:
        return _frame(self.code, self.data)


class CopyDone(_Bare, code=b"c"):
    """The end of a COPY stream, in either direction."""

    __slots__ = ()


# --- backend ---


class AuthenticationOk(_Bare, code=b"R", body=INT32.pack(0)):
    """Authentication succeeded."""

    __slots__ = ()


class AuthenticationCleartextPassword(_Bare, code=b"R", body=INT32.pack(3)):
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
        _need(_VERSION.size, at, end)
        version: tuple[int, int] = _VERSION.unpack_from(data, at)
        count, at = _int32(data, at + _VERSION.size, end)
        options = []
        for _ in range(count):
            option, at = _string(data, at, end)
            options.append(option)
        _finish(at, end)
        return cls(tuple(options), version)

    def serialize(self) -> bytes:
        options = map(_cstring, self.unknown_options)
        return _frame(self.code, _VERSION.pack(*self.version), INT32.pack(len(self.unknown_options)), *options)


@dataclass(slots=True)
class ParameterStatus:
    code: ClassVar[bytes] = b"S"
    name: str
    value: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        name, at = _string(data, at, end)
        return cls(name, _last_string(data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.name), _cstring(self.value))


@dataclass(slots=True)
class BackendKeyData:
    """The key that a CancelRequest for this connection must contain: two unsigned 32-bit numbers."""

    code: ClassVar[bytes] = b"K"
    process_id: int
    secret_key: int

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        _need(_KEY.size, at, end)
        _finish(at + _KEY.size, end)
        return cls(*_KEY.unpack_from(data, at))

    def serialize(self) -> bytes:
        return _frame(self.code, _KEY.pack(self.process_id, self.secret_key))


@dataclass(slots=True)
class ReadyForQuery:
    code: ClassVar[bytes] = b"Z"
    status: TransactionStatus

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        match data[at:end]:
            case b"I":
                return cls("I")
            case b"T":
                return cls("T")
            case b"E":
                return cls("E")
            case _:
                raise malformed("invalid message format")

    def serialize(self) -> bytes:
        return _READY[self.status]


_READY: dict[TransactionStatus, bytes] = {
    "I": _frame(b"Z", b"I"),
    "T": _frame(b"Z", b"T"),
    "E": _frame(b"Z", b"E"),
}


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """One column of a RowDescription. `table_oid` and `column_number` (1-based) are 0 if it is not a table's column."""

    name: str
    table_oid: int
    column_number: int
    type_oid: int
    size: int
    typmod: int
    format: int

    @classmethod
    def of(cls, name: str, type: PgType, format: int = 0) -> Self:
        """The description of a computed column."""
        return cls(name, 0, 0, type.oid, type.size, type.typmod, format)


@dataclass(slots=True)
class RowDescription:
    code: ClassVar[bytes] = b"T"
    fields: tuple[FieldDescription, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        _need(_COUNT.size, at, end)
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        fields = []
        for _ in range(count):
            name, at = _string(data, at, end)
            _need(_FIELD.size, at, end)
            fields.append(FieldDescription(name, *_FIELD.unpack_from(data, at)))
            at += _FIELD.size
        _finish(at, end)
        return cls(tuple(fields))

    def serialize(self) -> bytes:
        parts = [_COUNT.pack(len(self.fields))]
        for f in self.fields:
            parts.append(_cstring(f.name))
            parts.append(_FIELD.pack(f.table_oid, f.column_number, f.type_oid, f.size, f.typmod, f.format))
        return _frame(self.code, *parts)


@dataclass(slots=True)
class ParameterDescription:
    code: ClassVar[bytes] = b"t"
    type_oids: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        oids, at = _counted("I", 4, data, at, end)
        _finish(at, end)
        return cls(oids)

    def serialize(self) -> bytes:
        return _frame(self.code, _pack_counted("I", self.type_oids))


@dataclass(slots=True)
class DataRow:
    """One row. Its values are encoded in the formats of the RowDescription; None is NULL."""

    code: ClassVar[bytes] = b"D"
    values: tuple[bytes | None, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        values, at = _values(data, at, end)
        _finish(at, end)
        return cls(values)

    def serialize(self) -> bytes:
        return _frame(self.code, _pack_values(self.values))


class NoData(_Bare, code=b"n"):
    """Answers Describe for a statement that returns no rows."""

    __slots__ = ()


class ParseComplete(_Bare, code=b"1"):
    __slots__ = ()


class BindComplete(_Bare, code=b"2"):
    __slots__ = ()


class CloseComplete(_Bare, code=b"3"):
    __slots__ = ()


class PortalSuspended(_Bare, code=b"s"):
    """Ends an Execute that reached its `max_rows`."""

    __slots__ = ()


class EmptyQueryResponse(_Bare, code=b"I"):
    """Sent instead of CommandComplete if the query string was empty."""

    __slots__ = ()


@dataclass(slots=True)
class CommandComplete:
    """Ends a command. `tag` is its name and, for some commands, a row count: `SELECT 3`."""

    code: ClassVar[bytes] = b"C"
    tag: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(_last_string(data, at, end))

    def serialize(self) -> bytes:
        return _frame(self.code, _cstring(self.tag))


@dataclass(slots=True)
class _CopyResponse:
    """Starts a COPY: its overall format and the format of each column, which is the same; 0 for text and csv."""

    code: ClassVar[bytes]
    format: int
    column_formats: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        _need(1, at, end)
        formats, stop = _counted("h", 2, data, at + 1, end)
        _finish(stop, end)
        return cls(data[at], formats)

    def serialize(self) -> bytes:
        return _frame(self.code, bytes((self.format,)), _pack_counted("h", self.column_formats))


class CopyInResponse(_CopyResponse):
    """Starts COPY FROM STDIN: the client sends CopyData next."""

    __slots__ = ()
    code = b"G"


class CopyOutResponse(_CopyResponse):
    """Starts COPY TO STDOUT: the server sends CopyData next."""

    __slots__ = ()
    code = b"H"


@dataclass(slots=True)
class _Report:
    """The fields of an ErrorResponse or NoticeResponse; see `PgError`. `parse` ignores other fields."""

    code: ClassVar[bytes]
    severity: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    position: int | None = None
    where: str | None = None

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        fields: dict[int, str] = {}
        while at < end and data[at] != 0:
            field = data[at]
            fields[field], at = _string(data, at + 1, end)
        _finish(at + 1, end)
        position = fields.get(_POSITION)
        try:
            return cls(
                fields[_SEVERITY],
                fields[_SQLSTATE],
                fields[_MESSAGE],
                fields.get(_DETAIL),
                fields.get(_HINT),
                None if position is None else int(position),
                fields.get(_WHERE),
            )
        except (KeyError, ValueError):
            raise malformed("invalid message format") from None

    def serialize(self) -> bytes:
        # S (localized) and V (not localized) are the same here. Serializing an error must never fail, so characters
        # that the protocol's strings cannot contain are replaced.
        fields = (
            ("S", self.severity),
            ("V", self.severity),
            ("C", self.sqlstate),
            ("M", self.message),
            ("D", self.detail),
            ("H", self.hint),
            ("P", self.position),
            ("W", self.where),
        )
        parts = (
            f"{letter}{value}".replace("\0", "?").encode(errors="replace") + b"\0"
            for letter, value in fields
            if value is not None
        )
        return _frame(self.code, *parts, b"\0")


_SEVERITY, _SQLSTATE, _MESSAGE, _DETAIL, _HINT, _POSITION, _WHERE = b"VCMDHPW"


class ErrorResponse(_Report):
    """Reports an error, which ends the statement or, if its severity is FATAL, the connection."""

    __slots__ = ()
    code = b"E"

    @classmethod
    def of(cls, error: PgError) -> Self:
        return cls(error.severity, error.sqlstate, error.message, error.detail, error.hint, error.position, error.where)


class NoticeResponse(_Report):
    """A warning or notice. It may be sent at any time and has no effect on the protocol's state."""

    __slots__ = ()
    code = b"N"

    @classmethod
    def of(cls, notice: Notice) -> Self:
        return cls(notice.severity, notice.sqlstate, notice.message, notice.detail, notice.hint)


FrontendMessage = (
    OpeningPacket
    | PasswordMessage
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

BackendMessage = (
    AuthenticationOk
    | AuthenticationCleartextPassword
    | NegotiateProtocolVersion
    | ParameterStatus
    | BackendKeyData
    | ReadyForQuery
    | RowDescription
    | ParameterDescription
    | DataRow
    | NoData
    | ParseComplete
    | BindComplete
    | CloseComplete
    | PortalSuspended
    | EmptyQueryResponse
    | CommandComplete
    | CopyInResponse
    | CopyOutResponse
    | CopyData
    | CopyDone
    | ErrorResponse
    | NoticeResponse
)
