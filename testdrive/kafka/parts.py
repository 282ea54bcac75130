"""The formats of keys and values. A part of a message is its key or its value; a line of a script has both."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from testdrive.escapes import shown, unescaped
from testdrive.kafka.avro import AvroSchema

NULL = "<null>"


class Part(Protocol):
    """A format. Its methods raise ValueError for text and bytes that do not have it."""

    def read(self, text: str) -> tuple[bytes | None, str]:
        """Returns the bytes of the part that a line begins with, None for NULL, and the rest of the line."""

    def canonical(self, text: str) -> tuple[str, str]:
        """Returns the expected part that a line begins with, in the form of `show`, and the rest of the line."""

    def show(self, data: bytes | None) -> str:
        """Returns a part as in a script."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes up to a terminator, or to the end of the line. An empty part is NULL."""

    terminator: str | None = None

    def read(self, text: str) -> tuple[bytes | None, str]:
        part, rest = (text, "") if self.terminator is None else text.partition(self.terminator)[::2]
        return unescaped(part) or None, rest

    def canonical(self, text: str) -> tuple[str, str]:
        data, rest = self.read(text)
        return self.show(data), rest

    def show(self, data: bytes | None) -> str:
        return shown(data or b"") + (self.terminator or "")


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON value, sent as it is written. NULL is `<null>`, or nothing at the end of a line."""

    def read(self, text: str) -> tuple[bytes | None, str]:
        found = _json(text)
        return (None if found is None else found.written.encode()), _rest(text, found)

    def canonical(self, text: str) -> tuple[str, str]:
        return _canonical(text)

    def show(self, data: bytes | None) -> str:
        return NULL if data is None else _printed(_parsed(data.decode()))


@dataclass(frozen=True, slots=True)
class Avro:
    """An Avro value. `id`: of the schema in Confluent's wire format, which is a zero byte and 4 bytes; None without.

    `schema`: the one to write, None if messages are only read. `schema_of` returns the schema with an id.
    """

    schema: AvroSchema | None
    id: int | None
    schema_of: Callable[[int], AvroSchema]

    def read(self, text: str) -> tuple[bytes | None, str]:
        found = _json(text)
        if found is None:
            return None, _rest(text, found)
        assert self.schema is not None
        head = b"" if self.id is None else b"\0" + self.id.to_bytes(4, "big")
        return head + self.schema.encoded(found.value), _rest(text, found)

    def canonical(self, text: str) -> tuple[str, str]:
        return _canonical(text)

    def show(self, data: bytes | None) -> str:
        if data is None:
            return NULL
        if len(data) < 5 or data[0] != 0:
            raise ValueError(f"{shown(data)} does not begin with a zero byte and the id of a schema")
        return _printed(_normal(self.schema_of(int.from_bytes(data[1:5], "big")).decoded(data[5:])))


@dataclass(frozen=True, slots=True)
class _Found:
    value: Any
    written: str
    end: int


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_constant)


def _json(text: str) -> _Found | None:
    """Returns the JSON value that the text begins with, None for NULL."""
    start = len(text) - len(text.lstrip())
    if start == len(text) or text.startswith(NULL, start):
        return None
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    return _Found(value, text[start:end], end)


def _rest(text: str, found: _Found | None) -> str:
    return text[found.end :] if found else text.lstrip().removeprefix(NULL)


def _canonical(text: str) -> tuple[str, str]:
    found = _json(text)
    return (NULL if found is None else _printed(_normal(found.value))), _rest(text, found)


def _parsed(text: str) -> Any:
    return _normal(_DECODER.decode(text))


def _normal(value: Any) -> Any:
    """Returns the value with whole floats as integers, so that 1.0 equals 1."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_normal(item) for item in value]
        case dict():
            return {key: _normal(item) for key, item in value.items()}
    return value


def _printed(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
