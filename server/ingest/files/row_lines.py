"""Decodes the lines of changes that sinks write with ENVELOPE UPSERT and DEBEZIUM into files.

Arrow parses many lines together. What it refuses, and the few values that it converts in another way than PostgreSQL,
are decoded one by one. A decoder can be pickled, so that a worker process can decode lines (`decoder_pool`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import RowDecoder, Shape, load_json, parsed_lines
from protocol.cdcv2.messages import MessageError
from protocol.columnar.reasons import joined_reasons
from protocol.pgwire.errors import PgError

_LINE = r"^\{[^\n\r]*\}$"
_FRONTIERS = '{"frontier":'
_KEY, _VALUE, _FRONTIER = "key", "value", "frontier"
_BEFORE, _AFTER = "before", "after"

Mask = NDArray[np.bool_]
Object = dict[str, Any]
Numbered = tuple[int, Object]
"""The number of a line in those that are decoded together, and its message or a part of it."""


@dataclass(frozen=True)
class Lines(ABC):
    """The result of decoding lines, of which the first invalid one has `failed`: then all others have no result."""

    failed: Mask
    reason: Callable[[int], str]

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The results of consecutive parts of the lines as one."""

    @staticmethod
    def _joined(parts: Sequence[Lines]) -> tuple[Mask, Callable[[int], str]]:
        failed = np.concatenate([part.failed for part in parts])
        return failed, joined_reasons([(len(part.failed), part.reason) for part in parts])


@dataclass(frozen=True)
class Upserts(Lines):
    """The keys of lines, and for each whether it has a row. `rows`: the rows of those that have one."""

    keys: pa.Table
    has_row: Mask
    rows: pa.Table

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        keys, rows = (pa.concat_tables(tables) for tables in zip(*((p.keys, p.rows) for p in parts), strict=True))
        return cls(*cls._joined(parts), keys, np.concatenate([part.has_row for part in parts]), rows)


@dataclass(frozen=True)
class Images(Lines):
    """The rows before and after the changes."""

    before: pa.Table
    after: pa.Table

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        both = (pa.concat_tables(tables) for tables in zip(*((p.before, p.after) for p in parts), strict=True))
        return cls(*cls._joined(parts), *both)


@dataclass(frozen=True)
class Key(Lines):
    """The names of the fields of a line's key, in the order of the columns."""

    names: tuple[str, ...]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(*cls._joined(parts), parts[0].names)


class _InvalidLine(Exception):
    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


Found = TypeVar("Found", bound=Lines)


class LineDecoder(ABC, Generic[Found]):
    """Decodes lines whose rows have these columns."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)
        self._rows = RowDecoder(columns)

    @property
    def is_plain(self) -> bool:
        """As that of `RowDecoder`: otherwise all lines are decoded one by one."""
        return self._rows.is_plain

    def decode(self, data: pa.BinaryArray) -> Found:
        """May run in a thread or in another process."""
        try:
            return self._decoded(data)
        except _InvalidLine as error:
            reason = str(error)
            failed = np.zeros(len(data), np.bool_)
            failed[error.number] = True
            return self._result(failed, lambda row: reason)

    @abstractmethod
    def _decoded(self, lines: pa.BinaryArray) -> Found:
        """_InvalidLine"""

    @abstractmethod
    def _result(self, failed: Mask, reason: Callable[[int], str]) -> Found:
        """The result without rows."""

    def _parsed(self, lines: pa.BinaryArray, keys: RowDecoder, value: pa.DataType) -> pa.Table | None:
        """The lines without those of frontiers, parsed by Arrow; None if they must be decoded one by one."""
        if not self.is_plain or lines.null_count or not pc.all(pc.match_substring_regex(lines, _LINE)).as_py():
            return None
        schema = pa.schema([(_KEY, keys.type), (_VALUE, value), (_FRONTIER, pa.list_(pa.int64()))])
        table = parsed_lines(lines, schema)
        if table is None:
            return None
        changes = table.filter(table[_FRONTIER].is_null())
        frontiers = table.filter(table[_FRONTIER].is_valid())
        if frontiers[_KEY].null_count + frontiers[_VALUE].null_count < 2 * frontiers.num_rows:
            return None
        return changes


class KeyDecoder(LineDecoder[Key]):
    """Decodes a line to the names of its key's fields."""

    def _decoded(self, lines: pa.BinaryArray) -> Key:
        ((_, message),) = _messages(lines, _upsert_reason, None)
        names = [column.name for column in self._columns]
        for name in message[_KEY]:
            if name not in names:
                raise _InvalidLine(0, f'field "{name}" of the key is no column')
        if not message[_KEY]:
            raise _InvalidLine(0, "its key has no fields")
        return Key(*_valid(1), tuple(name for name in names if name in message[_KEY]))

    def _result(self, failed: Mask, reason: Callable[[int], str]) -> Key:
        return Key(failed, reason, ())


class UpsertDecoder(LineDecoder[Upserts]):
    """Decodes lines of ENVELOPE UPSERT. `key`: the names of the key's fields."""

    def __init__(self, columns: Sequence[EncodedColumn], key: Sequence[str]) -> None:
        super().__init__(columns)
        self._keys = RowDecoder([column for column in columns if column.name in key])

    def _decoded(self, lines: pa.BinaryArray) -> Upserts:
        if (table := self._parsed(lines, self._keys, self._rows.type)) is not None:
            key_values, values = table[_KEY].combine_chunks(), table[_VALUE].combine_chunks()
            keys = self._keys.converted(key_values, lines) if not key_values.null_count else None
            rows = self._rows.converted(values.drop_null(), lines)
            if keys is not None and rows is not None:
                return Upserts(*_valid(len(lines)), _table(keys), np.asarray(values.is_valid()), _table(rows))
        messages = _messages(lines, _upsert_reason, _shape({_KEY: self._keys.shape, _VALUE: self._rows.shape}))
        has_row = np.array([message[_VALUE] is not None for _, message in messages], np.bool_)
        keys_ = _loaded(self._keys, [(number, message[_KEY]) for number, message in messages])
        return Upserts(*_valid(len(lines)), keys_, has_row, _loaded(self._rows, _fields(messages, _VALUE)))

    def _result(self, failed: Mask, reason: Callable[[int], str]) -> Upserts:
        return Upserts(failed, reason, _loaded(self._keys, []), np.empty(0, np.bool_), _loaded(self._rows, []))


class ImageDecoder(LineDecoder[Images]):
    """Decodes lines of ENVELOPE DEBEZIUM."""

    def _decoded(self, lines: pa.BinaryArray) -> Images:
        pair = pa.struct([(_BEFORE, self._rows.type), (_AFTER, self._rows.type)])
        if (table := self._parsed(lines, self._rows, pair)) is not None:
            values = table[_VALUE].combine_chunks()
            images = [values.field(name) for name in (_BEFORE, _AFTER)]
            found = [self._rows.converted(image.drop_null(), lines) for image in images]
            if not values.null_count and found[0] is not None and found[1] is not None:
                return Images(*_valid(len(lines)), _table(found[0]), _table(found[1]))
        shape = _shape({_VALUE: _shape({_BEFORE: self._rows.shape, _AFTER: self._rows.shape})})
        values = [(number, message[_VALUE]) for number, message in _messages(lines, _image_reason, shape)]
        both = (_loaded(self._rows, _fields(values, name)) for name in (_BEFORE, _AFTER))
        return Images(*_valid(len(lines)), *both)

    def _result(self, failed: Mask, reason: Callable[[int], str]) -> Images:
        return Images(failed, reason, _loaded(self._rows, []), _loaded(self._rows, []))


def first_change(lines: pa.BinaryArray) -> int | None:
    """The number of the first line that is not a frontier; None if all are."""
    found = pc.index(pc.starts_with(lines, _FRONTIERS), False).as_py()
    return None if found < 0 else int(found)


def _shape(members: Mapping[str, Shape | None]) -> Shape | None:
    """The shape of an object with these members; None if none of them has one."""
    found = {name: shape for name, shape in members.items() if shape is not None}
    return Shape(found) if found else None


def _messages(lines: pa.BinaryArray, fault: Callable[[Object], str | None], shape: Shape | None) -> list[Numbered]:
    """The messages without frontiers, one by one. _InvalidLine

    `fault`: the reason why a message is invalid; None if it is valid. `shape`: see `load_json`.
    """
    found = []
    for number, line in enumerate(lines.to_pylist()):
        try:
            message = load_json(line or b"", shape)
        except MessageError as error:
            raise _InvalidLine(number, str(error)) from None
        if isinstance(message, dict) and message.keys() == {_FRONTIER}:
            continue
        if not isinstance(message, dict) or not message.keys() <= {_KEY, _VALUE}:
            raise _InvalidLine(number, 'it is not an object with the fields "key" and "value", or "frontier"')
        if (reason := fault(message)) is not None:
            raise _InvalidLine(number, reason)
        found.append((number, message))
    return found


def _upsert_reason(message: Object) -> str | None:
    if isinstance(message.get(_KEY), dict) and _VALUE in message and isinstance(message[_VALUE], dict | None):
        return None
    return "it has no key, or no value that is an object or null"


def _image_reason(message: Object) -> str | None:
    value = message.get(_VALUE)
    if isinstance(value, dict) and all(isinstance(value.get(name), dict | None) for name in (_BEFORE, _AFTER)):
        return None
    return 'it has no value with the fields "before" and "after"'


def _fields(messages: Sequence[Numbered], name: str) -> list[Numbered]:
    """The objects in a field of the messages that have one."""
    return [(number, message[name]) for number, message in messages if message.get(name) is not None]


def _loaded(decoder: RowDecoder, rows: Sequence[Numbered]) -> pa.Table:
    """_InvalidLine with the first row that cannot be decoded."""
    try:
        return _table(decoder.loaded([row for _, row in rows]))
    except (MessageError, PgError, pa.ArrowException, RecursionError, UnicodeEncodeError) as error:
        if len(rows) == 1:
            reason = error.message if isinstance(error, PgError) else str(error)
            raise _InvalidLine(rows[0][0], reason) from None
    half = len(rows) // 2
    return pa.concat_tables([_loaded(decoder, rows[:half]), _loaded(decoder, rows[half:])])


def _valid(count: int) -> tuple[Mask, Callable[[int], str]]:
    return np.zeros(count, np.bool_), _no_reason


def _no_reason(row: int) -> str:
    raise AssertionError(row)


def _table(columns: Sequence[pa.Array]) -> pa.Table:
    return pa.table(columns, [f"c{number}" for number in range(len(columns))])
