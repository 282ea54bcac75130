"""Decodes the lines of changes that sinks write with ENVELOPE UPSERT and DEBEZIUM into files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import RowDecoder, load_json, parsed_lines
from protocol.cdcv2.messages import MessageError
from protocol.pgwire.errors import PgError

_LINE = r"^\{[^\n\r]*\}$"
_FRONTIERS = re.compile(rb'^\{"frontier":')
_KEY, _VALUE, _FRONTIER = "key", "value", "frontier"
_BEFORE, _AFTER = "before", "after"

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Upserts:
    """The keys of lines, and for each whether it has a row. `rows`: the rows of those that have one."""

    keys: pa.Table
    has_row: Mask
    rows: pa.Table


class RowLines:
    """Decodes lines whose rows have these columns. The methods raise MessageError if a line is invalid."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)
        self._rows = RowDecoder(columns)

    def key_of(self, lines: pa.BinaryArray) -> tuple[str, ...] | None:
        """The names of the fields of the first key. None if there are only frontiers."""
        for line in lines:
            if not _FRONTIERS.match(line.as_py()):
                message = load_json(line.as_py())
                key = message.get(_KEY) if isinstance(message, dict) else None
                if not isinstance(key, dict) or not key:
                    raise MessageError("message without key")
                names = [column.name for column in self._columns]
                for name in key:
                    if name not in names:
                        raise MessageError(f'field "{name}" of the key is no column')
                return tuple(name for name in names if name in key)
        return None

    def upserts(self, lines: pa.BinaryArray, key: Sequence[str]) -> Upserts:
        """The lines of ENVELOPE UPSERT. `key`: the names of the key's fields."""
        keys = RowDecoder([column for column in self._columns if column.name in key])
        if (table := self._parsed(lines, keys, self._rows.type)) is not None:
            key_values, values = table[_KEY].combine_chunks(), table[_VALUE].combine_chunks()
            has_row = np.asarray(values.is_valid())
            found = keys.converted(key_values, lines) if not key_values.null_count else None
            rows = self._rows.converted(values.drop_null(), lines)
            if found is not None and rows is not None:
                return Upserts(_table(found), has_row, _table(rows))
        messages = _messages(lines, is_upsert=True)
        present = [message[_VALUE] for message in messages if message[_VALUE] is not None]
        has_row = np.array([message[_VALUE] is not None for message in messages], np.bool_)
        return Upserts(
            _table(_loaded(keys, [m[_KEY] for m in messages])), has_row, _table(_loaded(self._rows, present))
        )

    def images(self, lines: pa.BinaryArray) -> tuple[pa.Table, pa.Table]:
        """The rows before and after the changes of ENVELOPE DEBEZIUM."""
        pair = pa.struct([(_BEFORE, self._rows.type), (_AFTER, self._rows.type)])
        if (table := self._parsed(lines, self._rows, pair)) is not None:
            values = table[_VALUE].combine_chunks()
            images = [values.field(name) for name in (_BEFORE, _AFTER)]
            found = [self._rows.converted(image.drop_null(), lines) for image in images]
            if not values.null_count and found[0] is not None and found[1] is not None:
                return _table(found[0]), _table(found[1])
        messages = _messages(lines, is_upsert=False)
        old, new = ([m[_VALUE].get(name) for m in messages] for name in (_BEFORE, _AFTER))
        both = [[row for row in rows if row is not None] for rows in (old, new)]
        return _table(_loaded(self._rows, both[0])), _table(_loaded(self._rows, both[1]))

    def _parsed(self, lines: pa.BinaryArray, keys: RowDecoder, value: pa.DataType) -> pa.Table | None:
        """The lines without those of frontiers, parsed by Arrow; None if they must be decoded one by one."""
        if not self._rows.is_plain or not pc.all(pc.match_substring_regex(lines, _LINE)).as_py():
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


def _messages(lines: pa.BinaryArray, *, is_upsert: bool) -> list[dict[str, Any]]:
    """The messages without frontiers, one by one. MessageError"""
    found = []
    for number, line in enumerate(lines.to_pylist(), 1):
        message = load_json(line)
        if isinstance(message, dict) and message.keys() == {_FRONTIER}:
            continue
        if not isinstance(message, dict) or not message.keys() <= {_KEY, _VALUE}:
            raise MessageError(f'line {number} is not an object with the fields "key" and "value", or "frontier"')
        key, value = message.get(_KEY), message.get(_VALUE)
        if is_upsert:
            if not isinstance(key, dict) or _VALUE not in message or not isinstance(value, dict | None):
                raise MessageError(f"line {number} has no key, or no value that is an object or null")
        elif not isinstance(value, dict) or not all(
            isinstance(value.get(name), dict | None) for name in (_BEFORE, _AFTER)
        ):
            raise MessageError(f'line {number} has no value with the fields "before" and "after"')
        found.append(message)
    return found


def _loaded(decoder: RowDecoder, rows: Sequence[dict[str, Any]]) -> list[pa.Array]:
    try:
        return decoder.loaded(rows)
    except PgError as error:
        raise MessageError(error.message) from None
    except (pa.ArrowException, RecursionError, UnicodeEncodeError) as error:
        raise MessageError(str(error)) from None


def _table(columns: Sequence[pa.Array]) -> pa.Table:
    return pa.table(columns, [f"c{number}" for number in range(len(columns))])
