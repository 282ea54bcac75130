"""A small client of the PostgreSQL protocol, version 3, for `.pt` scripts.

It sends exactly the messages that the script specifies and returns every message that it receives. It supports only
trust authentication and no TLS. Formats: PostgreSQL manual, "Message Formats".
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PROTOCOL_VERSION = 3 << 16
CANCEL_REQUEST = (1234 << 16) + 5678


@dataclass(frozen=True, slots=True)
class Message:
    """A backend message: its name (`UNKNOWN '3'` for an unknown type) and its content; see `decode`."""

    kind: str
    content: object


class Connection:
    """A connection after its first ReadyForQuery. The constructor and methods raise ConnectionError, TimeoutError."""

    def __init__(self, host: str, port: int, parameters: Mapping[str, str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._received = b""
        self._address = (host, port)
        self._key = b""
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            pairs = b"".join(_text(name) + _text(value) for name, value in parameters.items())
            body = struct.pack("!i", PROTOCOL_VERSION) + pairs + b"\0"
            self.send(struct.pack("!i", len(body) + 4) + body)
            while (message := self.receive(deadline)).kind != "ReadyForQuery":
                if message.kind == "ErrorResponse":
                    raise ConnectionError(f"the server refused the connection: {message.content}")
                if message.kind == "BackendKeyData":
                    assert isinstance(message.content, bytes)
                    self._key = message.content
                if message.kind == "Authentication" and message.content != 0:
                    raise ConnectionError("the server wants a password; .pt scripts need trust authentication")
        except BaseException:
            self._socket.close()
            raise

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, deadline: float) -> Message:
        """Returns the next message. `deadline` is a time of `time.monotonic()`."""
        head = self._take(5, deadline)
        (length,) = struct.unpack("!i", head[1:])
        return decode(head[:1], self._take(length - 4, deadline))

    def cancel(self, timeout_s: float) -> None:
        """Sends a CancelRequest over another socket. Returns when the server has closed that socket."""
        with socket.create_connection(self._address, timeout_s) as other:
            other.sendall(struct.pack("!ii", 8 + len(self._key), CANCEL_REQUEST) + self._key)
            while other.recv(1024):
                pass

    def close(self) -> None:
        try:
            self.send(encode("Terminate", {}))
        except OSError:
            pass  # the server has closed the connection already
        finally:
            self._socket.close()

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._received) < count:
            self._socket.settimeout(max(1e-6, deadline - time.monotonic()))
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("the server closed the connection")
            self._received += more
        taken, self._received = self._received[:count], self._received[count:]
        return taken


def encode(kind: str, fields: Mapping[str, object]) -> bytes:
    """Encodes a frontend message. Raises ValueError for an unknown kind and for unknown, missing or mistyped fields."""
    if kind not in _FRONTEND:
        raise ValueError(f"there is no message {kind} to send")
    type_, build = _FRONTEND[kind]
    try:
        body = build(**fields)
    except (TypeError, struct.error) as error:
        raise ValueError(f"{kind}: {error}") from error
    return type_ + struct.pack("!i", len(body) + 4) + body


def decode(type_: bytes, body: bytes) -> Message:
    """Decodes a backend message. `content` is

    - the status letter of ReadyForQuery; the column names of RowDescription; the values of DataRow (bytes or None),
    - the tag of CommandComplete; (type, text) pairs of ErrorResponse and NoticeResponse,
    - (format, formats) of CopyOut and CopyIn; the bytes of CopyData; the type OIDs of ParameterDescription,
    - (name, value) of ParameterStatus; the code of Authentication; the bytes (process and secret) of BackendKeyData,
    - None for all other messages.
    """
    if type_ not in _BACKEND:
        return Message(f"UNKNOWN '{type_.decode('latin-1')}'", None)
    kind, read = _BACKEND[type_]
    return Message(kind, read(_Body(body)))


def _text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value.encode() + b"\0"


def _int16s(values: Sequence[int]) -> bytes:
    return struct.pack(f"!h{len(values)}h", len(values), *values)


def _query(query: str) -> bytes:
    return _text(query)


def _parse(query: str, name: str = "") -> bytes:
    return _text(name) + _text(query) + _int16s([])


def _target(variant: str = "S", name: str = "") -> bytes:
    if variant not in ("S", "P"):
        raise TypeError(f"variant is S or P, not {variant!r}")
    return variant.encode() + _text(name)


def _bind(
    portal: str = "",
    statement: str = "",
    values: Sequence[str | None] = (),
    result_formats: Sequence[int] = (),
    binary_values: Sequence[Sequence[int] | None] | None = None,
    param_formats: Sequence[int] | None = None,
) -> bytes:
    """`values` are strings and null, in text format. `binary_values` replaces them with lists of byte values.

    The default of `param_formats` is binary (1) for `binary_values`.
    """
    if binary_values is None:
        parameters = [None if value is None else value.encode() for value in values]
        formats = [] if param_formats is None else param_formats
    else:
        parameters = [None if value is None else bytes(value) for value in binary_values]
        formats = [1] if param_formats is None else param_formats
    sized = [b"\xff\xff\xff\xff" if p is None else struct.pack("!i", len(p)) + p for p in parameters]
    return (
        _text(portal)
        + _text(statement)
        + _int16s(formats)
        + struct.pack("!h", len(sized))
        + b"".join(sized)
        + _int16s(result_formats)
    )


def _execute(portal: str = "", max_rows: int = 0) -> bytes:
    return _text(portal) + struct.pack("!i", max_rows)


def _nothing() -> bytes:
    return b""


def _copy_data(data: str) -> bytes:
    return _text(data)[:-1]


_FRONTEND: dict[str, tuple[bytes, Callable[..., bytes]]] = {
    "Query": (b"Q", _query),
    "Parse": (b"P", _parse),
    "Describe": (b"D", _target),
    "Bind": (b"B", _bind),
    "Execute": (b"E", _execute),
    "Close": (b"C", _target),
    "Sync": (b"S", _nothing),
    "Flush": (b"H", _nothing),
    "CopyData": (b"d", _copy_data),
    "CopyDone": (b"c", _nothing),
    "CopyFail": (b"f", lambda data: _text(data)),
    "Terminate": (b"X", _nothing),
}


class _Body:
    """A reader over a message's body. Each method removes what it returns."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        value, _, self.data = self.data.partition(b"\0")
        return value.decode()

    def rest(self) -> bytes:
        return self.take(len(self.data))


def _row_description(body: _Body) -> list[str]:
    names = []
    for _ in range(body.signed(2)):
        names.append(body.text())
        body.take(18)  # table oid, column, type oid, size, modifier, format
    return names


def _data_row(body: _Body) -> list[bytes | None]:
    return [None if (size := body.signed(4)) < 0 else body.take(size) for _ in range(body.signed(2))]


def _fields(body: _Body) -> list[tuple[str, str]]:
    fields = []
    while (field := body.take(1)) not in (b"\0", b""):
        fields.append((field.decode(), body.text()))
    return fields


def _copy(body: _Body) -> tuple[int, list[int]]:
    return body.signed(1), [body.signed(2) for _ in range(body.signed(2))]


def _bare(body: _Body) -> None:
    return None


_BACKEND: dict[bytes, tuple[str, Callable[[_Body], object]]] = {
    b"R": ("Authentication", lambda body: body.signed(4)),
    b"K": ("BackendKeyData", lambda body: body.rest()),
    b"S": ("ParameterStatus", lambda body: (body.text(), body.text())),
    b"Z": ("ReadyForQuery", lambda body: body.take(1).decode()),
    b"T": ("RowDescription", _row_description),
    b"D": ("DataRow", _data_row),
    b"C": ("CommandComplete", lambda body: body.text()),
    b"E": ("ErrorResponse", _fields),
    b"N": ("NoticeResponse", _fields),
    b"H": ("CopyOut", _copy),
    b"G": ("CopyIn", _copy),
    b"d": ("CopyData", lambda body: body.rest()),
    b"c": ("CopyDone", _bare),
    b"t": ("ParameterDescription", lambda body: [body.unsigned(4) for _ in range(body.signed(2))]),
    b"n": ("NoData", _bare),
    b"1": ("ParseComplete", _bare),
    b"2": ("BindComplete", _bare),
    b"s": ("PortalSuspended", _bare),
    b"I": ("EmptyQueryResponse", _bare),
}
