"""Positions of Debezium's messages in the log of the upstream database, which are the same when a message is repeated.

A position is some integers, compared in order:

    PostgreSQL           LSN of the last commit (-1: null), LSN, operation (delete < create < others)
    MySQL with GTIDs     number of the transaction in its domain, then as without
    MySQL without GTIDs  0, number of the binlog file, position, row, operation

The operation distinguishes the delete and the create that one update of a primary key becomes.

Transactions of one domain have ascending numbers, those of two domains have no order. A GTID of MySQL is
`<server>:<number>`, and the server, with the tag if there is one, is the domain. One of MariaDB is
`<domain>-<server>-<number>`. Without GTIDs, and for PostgreSQL, there is one domain, "".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.avro.schema import Primitive, Record, without_null
from protocol.pgwire.errors import PgError, SqlState

Position = tuple[int, ...]
Highest = Mapping[str, Position]
"""The highest position in each domain."""
Mask = NDArray[np.bool_]

_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>\d{1,18})")\s*(?:,.*)?\]\s*$'
_FILE = r"^.*?(?P<number>\d{1,18})$"
_GTID = r"^(?:(?P<domain>\d+)-\d+-|(?P<server>.+):)(?P<number>\d{1,18})$"
_BINLOG = r"^file=.*?(?P<file>\d{1,8}),pos=(?P<pos>\d{1,11})$"

CONNECTOR = "Write the topic with a connector of Debezium for PostgreSQL, MySQL or MariaDB, without transformations."
_POS_BITS = 36  # a transaction that exceeds the maximum size of a binlog file makes it larger
_LAST_OPERATION = 2


class Upstream(StrEnum):
    """The databases whose messages have positions."""

    POSTGRES = "postgres"
    MYSQL = "mysql"


@dataclass(frozen=True)
class Positions:
    """One position per message. `known` is False for rows of a snapshot, and for messages without coordinates.

    `domains`: of the coordinates. `invalid`: messages with coordinates that cannot be read. `snapshot`: rows of a
    snapshot. `places`: two integers, which are the same for all rows of one snapshot.
    """

    coordinates: NDArray[np.int64]
    domains: NDArray[np.object_]
    known: Mask
    snapshot: Mask
    invalid: Mask
    places: NDArray[np.int64]

    def place(self, row: int) -> tuple[int, int]:
        first, second = self.places[row].tolist()
        return first, second

    def __getitem__(self, rows: slice) -> Positions:
        return Positions(*(getattr(self, part.name)[rows] for part in fields(self)))

    def take(self, rows: NDArray[np.intp]) -> Positions:
        return Positions(*(getattr(self, part.name)[rows] for part in fields(self)))

    def last(self, stop: int) -> Highest:
        """The position of the last message before row `stop`, for each domain."""
        known = np.flatnonzero(self.known[:stop])
        rows = dict(zip(self.domains[known].tolist(), known.tolist(), strict=True))
        return {domain: tuple(self.coordinates[row].tolist()) for domain, row in rows.items()}


def upstream_of(source: Record) -> Upstream:
    """The database that wrote messages with this type of `source`. PgError if their positions are no reliable order."""
    names = {field.name for field in source.fields}
    if "snapshot" not in names:
        raise _unsupported("'snapshot' field missing from source record")
    branches, _ = without_null(source.fields[[f.name for f in source.fields].index("snapshot")].type)
    if not all(isinstance(branch, Primitive) and branch.name in ("string", "boolean") for branch in branches):
        raise _unsupported("'snapshot' column must be a string or boolean")
    if {"file", "pos", "row"} <= names:  # MariaDB, too
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
    operations = np.asarray(op.fill_null(""), object)
    order = np.where(operations == "d", 0, np.where(operations == "c", 1, _LAST_OPERATION))
    domains = np.full(len(snapshot), "", object)
    if upstream is Upstream.POSTGRES:
        sequence, lsn = source["sequence"], source["lsn"]
        matched = np.asarray(pc.match_substring_regex(sequence, _SEQUENCE).fill_null(True))
        commit = _number(pc.extract_regex(sequence, _SEQUENCE), "commit", -1)
        columns = [commit, _integers(lsn), order]
        complete = np.asarray(sequence.is_valid()) & np.asarray(lsn.is_valid())
        places = [np.zeros_like(commit), columns[1]]
    else:
        file, pos, row = source["file"], source["pos"], source["row"]
        matched = np.asarray(pc.match_substring_regex(file, _FILE).fill_null(True))
        number = np.zeros(len(snapshot), np.int64)
        if "gtid" in source and source["gtid"].null_count < len(snapshot):
            domains, number, is_gtid = transaction_numbers(source["gtid"])
            matched &= is_gtid | np.asarray(source["gtid"].is_null())
        places = [_number(pc.extract_regex(file, _FILE), "number", 0), _integers(pos)]
        columns = [number, *places, _integers(row), order]
        complete = np.asarray(file.is_valid()) & np.asarray(pos.is_valid()) & np.asarray(row.is_valid())
    invalid = ~matched & ~snapshot
    coordinates, pairs = (np.stack(part, axis=1).astype(np.int64) for part in (columns, places))
    return Positions(coordinates, domains, complete & ~snapshot & ~invalid, snapshot, invalid, pairs)


def transaction_numbers(ids: pa.Array) -> tuple[NDArray[np.object_], NDArray[np.int64], Mask]:
    """The domains and numbers in the ids of transactions, and which ids have one of the known forms; NULL has none.

    They are GTIDs, `file=<binlog file>,pos=<position>` of MySQL without GTIDs, whose domain is "", or
    `<transaction>:<LSN>` of PostgreSQL, whose domain is the transaction.
    """
    encoded = ids.dictionary_encode()
    distinct = encoded.dictionary
    parts, binlog = pc.extract_regex(distinct, _GTID), pc.extract_regex(distinct, _BINLOG)
    file, pos = (_number(binlog, name, 0) for name in ("file", "pos"))
    numbers = np.where(binlog.is_valid(), (file << _POS_BITS) + pos, _number(parts, "number", -1))
    names = [pc.struct_field(parts, name).fill_null("") for name in ("domain", "server")]
    domains = np.asarray(pc.binary_join_element_wise(*names, ""), object)
    codes = np.asarray(encoded.indices.fill_null(len(distinct)))
    found = np.append(numbers, -1)[codes]
    return np.append(domains, "")[codes], found, found >= 0


def place_numbers(upstream: Upstream, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of snapshots as numbers of transactions in the domain "": LSNs, or positions in the binlog."""
    return places[:, 1] if upstream is Upstream.POSTGRES else (places[:, 0] << _POS_BITS) + places[:, 1]


def in_order(positions: Positions, rows: NDArray[np.intp], highest: Highest) -> tuple[Mask, Highest]:
    """A mask of `rows`, messages of one partition in order: those that are no repetitions; the highest positions then.

    A message with a position is accepted if it is higher than all before it in its domain. A message without one
    always is.
    """
    accepted = np.ones(len(rows), np.bool_)
    reached = dict(highest)
    ordered = np.flatnonzero(positions.known[rows])
    domains = positions.domains[rows[ordered]]
    for domain in set(domains.tolist()):
        own = ordered[domains == domain]
        found = positions.coordinates[rows[own]]
        start = np.array([reached.get(domain, (-2,) * found.shape[1])], np.int64)
        every = np.concatenate([start, found])
        ranks = _ranks(every)
        accepted[own] = ranks[1:] > np.maximum.accumulate(ranks)[:-1]
        reached[domain] = tuple(every[int(np.argmax(ranks))].tolist())
    return accepted, reached


def restored(upstream: Upstream, stored: Any) -> Highest:
    """The highest positions from JSON: by domain; or, as stored by earlier versions, one position or null."""
    if isinstance(stored, dict):
        return {domain: tuple(position) for domain, position in stored.items()}
    if not stored:
        return {}
    return {"": tuple(stored) if upstream is Upstream.POSTGRES else (0, *stored, _LAST_OPERATION)}


def _ranks(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each row in the order of all; equal rows have the same."""
    order = np.lexsort(rows.T[::-1])
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


def _unsupported(message: str, detail: str | None = None, hint: str = CONNECTOR) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, detail=detail, hint=hint)
