"""Positions of Debezium's messages in the log of the upstream database, which are the same when a message is repeated.

A position is three integers, compared in order:

    PostgreSQL   LSN of the last commit (-1: null), LSN, operation (delete < create < others)
    MySQL        number of the binlog file, position, row

The operation distinguishes the delete and the create that one update of a primary key becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.avro.schema import Primitive, Record, without_null
from protocol.pgwire.errors import PgError, SqlState

Position = tuple[int, int, int]
Mask = NDArray[np.bool_]

_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>\d{1,18})")\s*(?:,.*)?\]\s*$'
_FILE = r"^.*?(?P<number>\d{1,18})$"


class Upstream(StrEnum):
    """The databases whose messages have positions."""

    POSTGRES = "postgres"
    MYSQL = "mysql"


@dataclass(frozen=True)
class Positions:
    """One position per message. `known` is False for rows of a snapshot, and for messages without coordinates.

    `invalid`: messages with coordinates that cannot be read. `snapshot`: rows of a snapshot.
    """

    coordinates: NDArray[np.int64]
    known: Mask
    snapshot: Mask
    invalid: Mask

    def at(self, row: int) -> Position:
        first, second, third = self.coordinates[row].tolist()
        return first, second, third


def upstream_of(source: Record) -> Upstream:
    """The database that wrote messages with this type of `source`. PgError if their positions are no reliable order."""
    names = {field.name for field in source.fields}
    if "snapshot" not in names:
        raise _unsupported("'snapshot' field missing from source record")
    branches, _ = without_null(source.fields[[f.name for f in source.fields].index("snapshot")].type)
    if not all(isinstance(branch, Primitive) and branch.name in ("string", "boolean") for branch in branches):
        raise _unsupported("'snapshot' column must be a string or boolean")
    if {"file", "pos", "row"} <= names:
        return Upstream.MYSQL
    if {"change_lsn", "event_serial_no"} <= names:
        raise _unsupported(
            "ENVELOPE DEBEZIUM does not support SQL Server",
            "Several changes of SQL Server can have the same position, so repeated messages cannot be recognized.",
            "Use ENVELOPE DEBEZIUM UPSERT.",
        )
    if {"sequence", "lsn"} <= names:
        return Upstream.POSTGRES
    raise _unsupported("unknown type of upstream database", hint="Use ENVELOPE DEBEZIUM UPSERT.")


def is_snapshot(flags: pa.Array) -> Mask:
    """Whether `source.snapshot` says that a message is a row of a snapshot: neither null nor false."""
    if pa.types.is_boolean(flags.type):
        return np.asarray(flags.fill_null(False))
    return np.asarray(pc.not_equal(flags.fill_null("false"), "false"))


def positions(upstream: Upstream, source: Mapping[str, pa.Array], op: pa.Array) -> Positions:
    """The positions of messages, from the columns of their `source`."""
    snapshot = is_snapshot(source["snapshot"])
    if upstream is Upstream.POSTGRES:
        sequence, lsn = source["sequence"], source["lsn"]
        matched = np.asarray(pc.match_substring_regex(sequence, _SEQUENCE).fill_null(True))
        commit = _number(pc.extract_regex(sequence, _SEQUENCE), "commit", -1)
        operations = np.asarray(op.fill_null(""), object)
        order = np.where(operations == "d", 0, np.where(operations == "c", 1, 2))
        columns = [commit, _integers(lsn), order]
        complete = np.asarray(sequence.is_valid()) & np.asarray(lsn.is_valid())
        invalid = ~matched & ~snapshot
    else:
        file, pos, row = source["file"], source["pos"], source["row"]
        named = np.asarray(pc.match_substring_regex(file, _FILE).fill_null(True))
        columns = [_number(pc.extract_regex(file, _FILE), "number", 0), _integers(pos), _integers(row)]
        complete = np.asarray(file.is_valid()) & np.asarray(pos.is_valid()) & np.asarray(row.is_valid())
        invalid = ~named & ~snapshot
    coordinates = np.stack(columns, axis=1).astype(np.int64)
    return Positions(coordinates, complete & ~snapshot & ~invalid, snapshot, invalid)


def in_order(positions: Positions, rows: NDArray[np.intp], highest: Position | None) -> tuple[Mask, Position | None]:
    """Which of `rows`, the messages of one partition in order, are no repetitions; and the highest position after them.

    A message with a position is accepted if it is higher than all before it. A message without one always is.
    """
    accepted = np.ones(len(rows), np.bool_)
    ordered = np.flatnonzero(positions.known[rows])
    if len(ordered) == 0:
        return accepted, highest
    found = positions.coordinates[rows[ordered]]
    start = np.array([highest if highest is not None else (-2, -2, -2)], np.int64)
    every = np.concatenate([start, found])
    ranks = _ranks(every)
    before = np.maximum.accumulate(ranks)[:-1]
    accepted[ordered] = ranks[1:] > before
    first, second, third = every[int(np.argmax(ranks))].tolist()
    return accepted, (first, second, third)


def _ranks(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each row in the order of all; equal rows have the same."""
    order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    steps = np.any(np.diff(rows[order], axis=0) != 0, axis=1)
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(steps)])
    return ranks


def _number(fields: pa.Array, name: str, default: int) -> NDArray[np.int64]:
    """A group of digits as numbers; `default` where there is none."""
    digits = pc.struct_field(fields, name)
    digits = pc.if_else(pc.equal(digits, ""), pa.scalar(None, digits.type), digits)
    found: NDArray[np.int64] = digits.cast(pa.int64()).fill_null(default).to_numpy()
    return found


def _integers(column: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy()
    return found


def _unsupported(message: str, detail: str | None = None, hint: str | None = None) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, detail=detail, hint=hint)
