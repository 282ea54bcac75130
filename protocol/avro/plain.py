"""Decodes one Avro value at a time. Nested values use it, and messages that the vectorised decoder cannot decode."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from protocol.avro.schema import Array, Enum, Fixed, Map, Primitive, Record, Type, Union, describe

ITEMS_MAX = 1_000_000  # of an array or map
EMPTY_ITEMS_MAX = 1_000  # of all arrays of a value: the message does not bound the number of items without bytes
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class DecodeError(Exception):
    """The bytes are no value of the schema. The message says where and why."""


class TruncatedError(DecodeError):
    """The bytes end before the value does."""


class PlainReader:
    """Reads values from the bytes of one message: `data[position:end]`."""

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        self._empty_items = 0

    def read(self, type: Type) -> Any:
        """The next value as Python value. Records and maps are dicts. DecodeError."""
        match type:
            case Primitive(name):
                return self._primitive(name)
            case Fixed(_, size):
                return self._bytes(size)
            case Enum(name, symbols):
                index = self._long()
                if not 0 <= index < len(symbols):
                    raise DecodeError(f"enum {name} has no symbol {index}")
                return symbols[index]
            case Union(branches):
                return self.read(self._branch(branches))
            case Array(items):
                return self._items(items, None)
            case Map(values):
                return dict(self._items(values, Primitive("string")))
            case Record(_, fields):
                return {field.name: self._field(field.name, field.type) for field in fields}
        raise AssertionError(type)

    def skip(self, type: Type) -> None:
        """Moves over a value. Only what is needed to find its end is checked. DecodeError."""
        match type:
            case Record(_, fields):
                for field in fields:
                    self.skip(field.type)
            case Union(branches):
                self.skip(self._branch(branches))
            case Primitive("int" | "long") | Enum():
                self._long()
            case Primitive("string" | "bytes"):
                self._advance(self._long())
            case Primitive(name):
                self._advance(_SIZES[name])
            case Fixed(_, size):
                self._advance(size)
            case Array(items):
                self._skip_items(items, None)
            case Map(values):
                self._skip_items(values, Primitive("string"))

    def _skip_items(self, items: Type, key: Type | None) -> None:
        skipped = 0
        while count := self._long():
            if count < 0:
                self._advance(self._long())  # the size of the block in bytes
                continue
            skipped += count
            if skipped > ITEMS_MAX:
                raise DecodeError(f"more than {ITEMS_MAX} items")
            begin = self.position
            for _ in range(count):
                if key is not None:
                    self.skip(key)
                self.skip(items)
                self._count_if_empty(begin)

    def finish(self) -> None:
        """DecodeError if there are bytes left."""
        if (left := self.end - self.position) > 0:
            raise DecodeError(f"{left} bytes left over after the value")

    def _field(self, name: str, type: Type) -> Any:
        try:
            return self.read(type)
        except DecodeError as error:
            raise DecodeError(f"field {name}: {error}") from None

    def _branch(self, branches: tuple[Type, ...]) -> Type:
        index = self._long()
        if not 0 <= index < len(branches):
            raise DecodeError(f"union of {len(branches)} types has no branch {index}")
        return branches[index]

    def _items(self, items: Type, key: Type | None) -> list[Any]:
        found: list[Any] = []
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of the block in bytes
            if len(found) + count > ITEMS_MAX:
                raise DecodeError(f"more than {ITEMS_MAX} items")
            begin = self.position
            for _ in range(count):
                found.append(self.read(items) if key is None else (self.read(key), self.read(items)))
                self._count_if_empty(begin)
        return found

    def _count_if_empty(self, begin: int) -> None:
        """Counts an item of a block that began at `begin`, if the block has no bytes. DecodeError if there are many."""
        if self.position == begin:
            self._empty_items += 1
            if self._empty_items > EMPTY_ITEMS_MAX:
                raise DecodeError(f"more than {EMPTY_ITEMS_MAX} items without bytes")

    def _primitive(self, name: str) -> Any:
        match name:
            case "null":
                return None
            case "boolean":
                return self._bytes(1) != b"\0"
            case "int" | "long":
                value = self._long()
                if name == "int" and not -(1 << 31) <= value < 1 << 31:
                    raise DecodeError(f"{value} is out of range for type Int")
                return value
            case "float":
                return struct.unpack("<f", self._bytes(4))[0]
            case "double":
                return struct.unpack("<d", self._bytes(8))[0]
            case "bytes":
                return self._bytes(self._long())
            case _:
                try:
                    return self._bytes(self._long()).decode()
                except UnicodeDecodeError as error:
                    raise DecodeError(f"invalid UTF-8: {error.reason}") from None

    def _long(self) -> int:
        value, shift = 0, 0
        while True:
            if self.position >= self.end:
                raise TruncatedError("unexpected end of the message")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise DecodeError("integer of more than ten bytes")
        if value >= 1 << 64:
            raise DecodeError("integer of more than 64 bits")
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        start = self.position
        self._advance(count)
        return self.data[start : self.position]

    def _advance(self, count: int) -> None:
        if count < 0:
            raise DecodeError(f"negative length {count}")
        if self.position + count > self.end:
            raise TruncatedError("unexpected end of the message")
        self.position += count


def as_json(value: Any, type: Type) -> Any:
    """A value as `printed_jsonb` takes it: numbers are Decimal, bytes are text as bytea prints them."""
    match type, value:
        case _, None | bool():
            return value
        case Union(branches), _:
            return as_json(value, next(branch for branch in branches if _fits(value, branch)))
        case Array(items), _:
            return [as_json(item, items) for item in value]
        case Map(values), _:
            return {key: as_json(item, values) for key, item in value.items()}
        case Record(), _:
            return {field.name: as_json(value[field.name], field.type) for field in type.fields}
        case _, bytes():
            return "\\x" + value.hex()
        case _, int():
            return Decimal(value)
        case _, float():
            number = Decimal(repr(value))
            return number if number.is_finite() else str(value)
    return value


def _fits(value: Any, type: Type) -> bool:
    """Whether a value that `read` returned may be of this type. Records are distinguished by their fields."""
    match type:
        case Primitive("null"):
            return value is None
        case Primitive("boolean"):
            return isinstance(value, bool)
        case Primitive("int" | "long"):
            return isinstance(value, int)
        case Primitive("float" | "double"):
            return isinstance(value, float)
        case Primitive("bytes") | Fixed():
            return isinstance(value, bytes)
        case Primitive() | Enum():
            return isinstance(value, str)
        case Array():
            return isinstance(value, list)
        case Map():
            return isinstance(value, dict)
        case Record(_, fields):
            return isinstance(value, dict) and value.keys() == {field.name for field in fields}
    raise AssertionError(describe(type))
