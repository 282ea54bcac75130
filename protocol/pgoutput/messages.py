"""The messages of `pgoutput` that describe transactions and relations: one object per message.

`parse` returns None for a message that changes rows (see `rows`) and for one that carries nothing for a replica: Type,
Origin, and logical decoding messages. Every value is sent as text, so the names of types are not needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from protocol.pgoutput import BadMessage

INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
_IGNORED: Final = b"IUDYOM"
COLUMNS_MAX: Final = 1_600  # of a table of PostgreSQL

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_UINT32 = struct.Struct(">I")
_UINT16 = struct.Struct(">H")
_COLUMN = struct.Struct(">Ii")


class ReplicaIdentity(StrEnum):
    """What UPDATE and DELETE send of the old row, as pg_class.relreplident has it."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Begin:
    """`commit_lsn`: where the transaction's commit record starts. Transactions are sent in this order."""

    commit_lsn: int
    committed_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`end_lsn`: the end of the commit record, where streaming can continue after the transaction."""

    commit_lsn: int
    end_lsn: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """`is_key`: part of the replica identity; every column of FULL. `type`: its OID. `typmod`: -1 if there is none."""

    name: str
    type: int
    typmod: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as the following messages that change rows have it. Sent before the first one, and after changes."""

    id: int
    schema: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Truncate


def parse(data: bytes) -> Message | None:
    """BadMessage if the message is malformed or unknown."""
    try:
        match data[:1]:
            case b"B":
                return Begin(*_BEGIN.unpack_from(data, 1))
            case b"C":
                return Commit(*_COMMIT.unpack_from(data, 1)[1:])
            case b"R":
                return _relation(data)
            case b"T":
                (count,) = _UINT32.unpack_from(data, 1)
                if len(data) != 6 + 4 * count:
                    raise BadMessage(f"TRUNCATE of {count} relations has {len(data)} bytes")
                return Truncate(struct.unpack_from(f">{count}I", data, 6))
            case kind if kind and kind in _IGNORED:
                return None
            case kind:
                raise BadMessage(f"unknown message {kind!r}")
    except (struct.error, ValueError, IndexError) as error:
        raise BadMessage(f"malformed message {data[:1]!r}: {error}") from None


def _relation(data: bytes) -> Relation:
    (id,) = _UINT32.unpack_from(data, 1)
    schema, position = _string(data, 5)
    name, position = _string(data, position)
    identity = ReplicaIdentity(chr(data[position]))
    (count,) = _UINT16.unpack_from(data, position + 1)
    if count > COLUMNS_MAX:
        raise BadMessage(f"relation {id} has {count} columns, more than {COLUMNS_MAX}")
    position += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[position] & 1)
        column, position = _string(data, position + 1)
        type, typmod = _COLUMN.unpack_from(data, position)
        position += _COLUMN.size
        columns.append(RelationColumn(column, type, typmod, is_key))
    # Relations of pg_catalog have an empty name for their schema.
    return Relation(id, schema or "pg_catalog", name, identity, tuple(columns))


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = data.index(b"\0", position)
    return data[position:end].decode(), end + 1
