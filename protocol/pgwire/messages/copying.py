"""The messages of COPY, in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from protocol.pgwire.messages.wire_format import (
    FixedMessage,
    cstring,
    finish,
    frame,
    need,
    pack_counted,
    read_counted,
    read_last_string,
)


@dataclass(slots=True)
class CopyFail:
    code: ClassVar[bytes] = b"f"
    message: str

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(read_last_string(data, at, end))

    def serialize(self) -> bytes:
        return frame(self.code, cstring(self.message))


@dataclass(slots=True)
class CopyData:
    """Part of a COPY stream, in either direction. A client may split the stream anywhere, even within a row."""

    code: ClassVar[bytes] = b"d"
    data: bytes

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        return cls(data[at:end])

    def serialize(self) -> bytes:
        return frame(self.code, self.data)


class CopyDone(FixedMessage, code=b"c"):
    """The end of a COPY stream, in either direction."""

    __slots__ = ()


@dataclass(slots=True)
class _CopyResponse:
    """Starts a COPY: its overall format and the format of each column, which is the same; 0 for text and csv."""

    code: ClassVar[bytes]
    format: int
    column_formats: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, at: int, end: int) -> Self:
        need(1, at, end)
        formats, stop = read_counted("h", 2, data, at + 1, end)
        finish(stop, end)
        return cls(data[at], formats)

    def serialize(self) -> bytes:
        return frame(self.code, bytes((self.format,)), pack_counted("h", self.column_formats))


class CopyInResponse(_CopyResponse):
    """Starts COPY FROM STDIN: the client sends CopyData next."""

    __slots__ = ()
    code = b"G"


class CopyOutResponse(_CopyResponse):
    """Starts COPY TO STDOUT: the server sends CopyData next."""

    __slots__ = ()
    code = b"H"
