"""Messages of `pgoutput` written and read one by one: the plain equivalent of `protocol.pgoutput.rows`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from protocol.pgoutput.messages import Relation


class Unchanged(Enum):
    UNCHANGED = "u"


Value = str | None | Literal[Unchanged.UNCHANGED]
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Change:
    """`before`: K or O and the row."""

    kind: Literal["I", "U", "D"]
    relation: int
    before: tuple[Literal["K", "O"], Row] | None
    new: Row | None


def written(change: Change) -> bytes:
    data = change.kind.encode() + struct.pack(">I", change.relation)
    if change.before is not None:
        marker, row = change.before
        data += marker.encode() + _tuple(row)
    return data + (b"" if change.new is None else b"N" + _tuple(change.new))


def _tuple(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(_value(value) for value in row)


def _value(value: Value) -> bytes:
    if value is None or isinstance(value, Unchanged):
        return b"n" if value is None else b"u"
    text = value.encode()
    return b"t" + struct.pack(">I", len(text)) + text


def relation_message(relation: Relation) -> bytes:
    data = b"R" + struct.pack(">I", relation.id) + relation.schema.encode() + b"\0" + relation.name.encode() + b"\0"
    data += relation.identity.encode() + struct.pack(">H", len(relation.columns))
    for column in relation.columns:
        data += bytes([column.is_key]) + column.name.encode() + b"\0" + struct.pack(">Ii", column.type, column.typmod)
    return data
