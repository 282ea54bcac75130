"""The messages of the server after the startup, and the union of all messages of the server."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Literal, Self

from protocol.pgwire.errors import Notice, PgError
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyInResponse, CopyOutResponse
from protocol.pgwire.messages.sasl import AuthenticationSASL, AuthenticationSASLContinue, AuthenticationSASLFinal
from protocol.pgwire.messages.startup import (
    AuthenticationCleartextPassword,
    AuthenticationOk,
    BackendKeyData,
    NegotiateProtocolVersion,
)
from protocol.pgwire.messages.wire_format import (
    COUNT,
    FixedMessage,
    cstring,
    finish,
    frame,
    malformed,
    need,
    pack_counted,
    pack_values,
    read_counted,
    read_last_string,
    read_string,
    read_values,
)
from protocol.pgwire.types import PgType

_FIELD = Struct(">IhIhih")
_PROCESS_ID = Struct(">I")

TransactionStatus = Literal["I", "T", "E"]  # idle, in a transaction block, in a failed one


@dataclass(slots=True)
class ParameterStatus:
    code: ClassVar[bytes] = b"S"
    name: str
    value: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        name, at = read_string(data, at, end)
        return cls(name, read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.name), cstring(self.value))


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
    "I": frame(b"Z", b"I"),
    "T": frame(b"Z", b"T"),
    "E": frame(b"Z", b"E"),
}


@dataclass(slots=True)
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
    def of(cls, name: str, type: PgType, format: int = 0, table_oid: int = 0, column_number: int = 0) -> Self:
        """The description of a column of this type."""
        return cls(name, table_oid, column_number, type.oid, type.size, type.typmod, format)


@dataclass(slots=True)
class RowDescription:
    code: ClassVar[bytes] = b"T"
    fields: tuple[FieldDescription, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(COUNT.size, at, end)
        (count,) = COUNT.unpack_from(data, at)
        at += COUNT.size
        fields = []
        for _ in range(count):
            name, at = read_string(data, at, end)
            need(_FIELD.size, at, end)
            fields.append(FieldDescription(name, *_FIELD.unpack_from(data, at)))
            at += _FIELD.size
        finish(at, end)
        return cls(tuple(fields))

    def serialize(self) -> bytes:
        parts = [COUNT.pack(len(self.fields))]
        for f in self.fields:
            parts.append(cstring(f.name))
            parts.append(_FIELD.pack(f.table_oid, f.column_number, f.type_oid, f.size, f.typmod, f.format))
        return frame(self.code, *parts)


@dataclass(slots=True)
class ParameterDescription:
    code: ClassVar[bytes] = b"t"
    type_oids: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        oids, at = read_counted("I", 4, data, at, end)
        finish(at, end)
        return cls(oids)

    def serialize(self) -> bytes:
        return frame(self.code, pack_counted("I", self.type_oids))


@dataclass(slots=True)
class DataRow:
    """One row. Its values are encoded in the formats of the RowDescription; None is NULL."""

    code: ClassVar[bytes] = b"D"
    values: tuple[bytes | None, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        values, at = read_values(data, at, end)
        finish(at, end)
        return cls(values)

    def serialize(self) -> bytes:
        return frame(self.code, pack_values(self.values))


class NoData(FixedMessage, code=b"n"):
    """Answers Describe for a statement that returns no rows."""

    __slots__ = ()


class ParseComplete(FixedMessage, code=b"1"):
    __slots__ = ()


class BindComplete(FixedMessage, code=b"2"):
    __slots__ = ()


class CloseComplete(FixedMessage, code=b"3"):
    __slots__ = ()


class PortalSuspended(FixedMessage, code=b"s"):
    """Ends an Execute that reached its `max_rows`."""

    __slots__ = ()


class EmptyQueryResponse(FixedMessage, code=b"I"):
    """Sent instead of CommandComplete if the query string was empty."""

    __slots__ = ()


@dataclass(slots=True)
class CommandComplete:
    """Ends a command. `tag` is its name and, for some commands, a row count: `SELECT 3`."""

    code: ClassVar[bytes] = b"C"
    tag: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.tag))


@dataclass(slots=True)
class NotificationResponse:
    """A NOTIFY of the session with this process id."""

    code: ClassVar[bytes] = b"A"
    process_id: int
    channel: str
    payload: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(_PROCESS_ID.size, at, end)
        (process_id,) = _PROCESS_ID.unpack_from(data, at)
        channel, at = read_string(data, at + _PROCESS_ID.size, end)
        return cls(process_id, channel, read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, _PROCESS_ID.pack(self.process_id), cstring(self.channel), cstring(self.payload))


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
    schema_name: str | None = None
    table_name: str | None = None
    column_name: str | None = None
    constraint_name: str | None = None
    routine: str | None = None

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        fields: dict[int, str] = {}
        while at < end and data[at] != 0:
            field = data[at]
            fields[field], at = read_string(data, at + 1, end)
        finish(at + 1, end)
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
                fields.get(_SCHEMA),
                fields.get(_TABLE),
                fields.get(_COLUMN),
                fields.get(_CONSTRAINT),
                fields.get(_ROUTINE),
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
            ("s", self.schema_name),
            ("t", self.table_name),
            ("c", self.column_name),
            ("n", self.constraint_name),
            ("R", self.routine),
        )
        parts = (
            f"{letter}{value}".replace("\0", "?").encode(errors="replace") + b"\0"
            for letter, value in fields
            if value is not None
        )
        return frame(self.code, *parts, b"\0")


_SEVERITY, _SQLSTATE, _MESSAGE, _DETAIL, _HINT, _POSITION, _WHERE = b"VCMDHPW"
_SCHEMA, _TABLE, _COLUMN, _CONSTRAINT, _ROUTINE = b"stcnR"


class ErrorResponse(_Report):
    """Reports an error, which ends the statement or, if its severity is FATAL, the connection."""

    __slots__ = ()
    code = b"E"

    @classmethod
    def of(cls, error: PgError) -> Self:
        return cls(
            error.severity,
            error.sqlstate,
            error.message,
            error.detail,
            error.hint,
            error.position,
            error.where,
            error.schema_name,
            error.table_name,
            error.column_name,
            error.constraint_name,
            error.routine,
        )


class NoticeResponse(_Report):
    """A warning or notice. It may be sent at any time and has no effect on the protocol's state."""

    __slots__ = ()
    code = b"N"

    @classmethod
    def of(cls, notice: Notice) -> Self:
        return cls(notice.severity, notice.sqlstate, notice.message, notice.detail, notice.hint)


BackendMessage = (
    AuthenticationOk
    | AuthenticationCleartextPassword
    | AuthenticationSASL
    | AuthenticationSASLContinue
    | AuthenticationSASLFinal
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
    | NotificationResponse
)
