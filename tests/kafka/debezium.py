"""Debezium's messages of simulated databases, and what a connector does after a crash."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import fastavro

from catalog.source_definition import Encoding, Envelope, Format
from server.ingest.kafka.layouts.layout import Schemas
from tests.kafka.outputs import Message

_VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": ["null", "string"], "default": None}],
}
_TRANSACTION = {
    "type": "record",
    "name": "block",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}
_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
_OF_SOURCE: dict[str, list[tuple[str, Any]]] = {
    "postgres": [("sequence", ["null", "string"]), ("lsn", ["null", "long"])],
    "mysql": [("file", "string"), ("pos", "long"), ("row", "int"), ("gtid", ["null", "string"])],
    "sqlserver": [("change_lsn", ["null", "string"]), ("event_serial_no", ["null", "long"])],
}


def envelope_schema(database: str, *, without: Sequence[str] = ()) -> dict[str, Any]:
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "snapshot", "type": ["string", "null"], "default": "false"}]
        + [{"name": name, "type": type} for name, type in _OF_SOURCE[database]],
    }
    fields = [
        {"name": "before", "type": ["null", _VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {"name": "transaction", "type": ["null", _TRANSACTION], "default": None},
    ]
    if "before" in without:
        fields[1]["type"] = ["null", _VALUE]
    return {"type": "record", "name": "Envelope", "fields": [f for f in fields if f["name"] not in without]}


def schemas_of(database: str, *, without: Sequence[str] = ()) -> Schemas:
    return Schemas(json.dumps(_KEY), json.dumps(envelope_schema(database, without=without)))


_ENCODING = Encoding("avro", schema="", options={"confluent wire format": "false"})
CLASSIC = Format(_ENCODING, _ENCODING, envelope=Envelope.DEBEZIUM)
UPSERT = Format(_ENCODING, _ENCODING, envelope=Envelope.DEBEZIUM_UPSERT)


def encoded(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Event:
    """A change. `position`: LSN of the last commit, and LSN; or number of the binlog file, and position.

    `row` and `gtid`: of MySQL.
    """

    op: str
    before: tuple[int, str | None] | None
    after: tuple[int, str | None] | None
    position: tuple[int | None, int]
    snapshot: str = "false"
    row: int = 0
    gtid: str | None = None
    transaction: tuple[str, int] | None = None

    @property
    def id(self) -> int:
        row = self.after or self.before
        assert row is not None
        return row[0]

    def message(self, database: str = "postgres", partitions: int = 1) -> Message:
        first, second = self.position
        source: dict[str, Any] = {"snapshot": self.snapshot}
        if database == "postgres":
            source |= {"sequence": json.dumps([None if first is None else str(first), str(second)]), "lsn": second}
        else:
            source |= {"file": f"mysql-bin.{first:06}", "pos": second, "row": self.row, "gtid": self.gtid}
        value = {
            "before": _row(self.before),
            "after": _row(self.after),
            "source": source,
            "op": self.op,
            "ts_ms": 1,
            "transaction": None
            if self.transaction is None
            else {"id": self.transaction[0], "total_order": self.transaction[1], "data_collection_order": 1},
        }
        key = encoded(_KEY, {"id": self.id})
        return Message(key, encoded(envelope_schema(database), value), self.id % partitions)

    def tombstone(self, partitions: int = 1) -> Message:
        return Message(encoded(_KEY, {"id": self.id}), None, self.id % partitions)


def _row(row: tuple[int, str | None] | None) -> dict[str, Any] | None:
    return None if row is None else {"id": row[0], "v": row[1]}


class Database:
    """A table, and the events that a connector writes for it: a snapshot, then random transactions.

    `database`: postgres; mysql; or gtid, a MySQL with GTIDs, which is replaced by a replica now and then.
    """

    def __init__(self, random: random.Random, database: str = "postgres") -> None:
        self.rows: dict[int, str | None] = {}
        self.name = "postgres" if database == "postgres" else "mysql"
        self._random = random
        self._mysql = self.name == "mysql"
        self._server: int | None = 1 if database == "gtid" else None
        self._numbers = {1: 8, 2: 3}  # of the last transaction of each server
        self._lsn = 100
        self._commit: int | None = None
        self._file = 8  # the file after 9 is 10: later, but less as text
        self._values = 0

    def insert(self, count: int) -> None:
        """Rows that only a snapshot has."""
        for id in range(count):
            self.rows[id] = self._value()

    def snapshot(self) -> list[Event]:
        position = (self._file, self._lsn) if self._mysql else (self._commit, self._lsn)
        flags = ["first", *["true"] * len(self.rows)]
        events = [
            Event("r", None, (id, v), position, flag) for (id, v), flag in zip(self.rows.items(), flags, strict=False)
        ]
        if events:
            events[-1] = replace(events[-1], snapshot="last")
        self._lsn += 1
        return events

    def transaction(self) -> list[Event]:
        if self._mysql and self._random.random() < 0.2:
            self._file, self._lsn = self._file + 1, 4
        if self._server is not None:
            if self._random.random() < 0.2:  # another server, with files of its own
                self._server, self._file, self._lsn = self._random.choice((1, 2)), self._random.randint(1, 20), 4
            self._numbers[self._server] += 1
        events: list[Event] = []
        for _ in range(self._random.randint(1, 3)):
            self._lsn += self._random.randint(1, 9)
            events += self._change()
        self._commit = self._lsn = self._lsn + 1
        if self._server is None:
            return events
        return [replace(event, gtid=f"server-{self._server}:{self._numbers[self._server]}") for event in events]

    def _change(self) -> list[Event]:
        """The events of a statement."""
        if self._mysql:  # with up to three rows at one position
            position = (self._file, self._lsn)
            rows = [self._change_of_row(position) for _ in range(self._random.randint(1, 3))]
            return [replace(event, row=number) for number, events in enumerate(rows) for event in events]
        return self._change_of_row((self._commit, self._lsn))

    def _change_of_row(self, position: tuple[int | None, int]) -> list[Event]:
        id = self._random.randrange(8)
        if id not in self.rows:
            self.rows[id] = self._value()
            return [Event("c", None, (id, self.rows[id]), position)]
        old = (id, self.rows[id])
        match self._random.randrange(3):
            case 0:
                del self.rows[id]
                return [Event("d", old, None, position)]
            case 1 if (other := self._random.randrange(8)) not in self.rows:  # an update of the primary key
                del self.rows[id]
                self.rows[other] = self._value()
                return [Event("d", old, None, position), Event("c", None, (other, self.rows[other]), position)]
        self.rows[id] = self._value()
        return [Event("u", old, (id, self.rows[id]), position)]

    def _value(self) -> str | None:
        self._values += 1
        return None if self._values % 7 == 0 else f"v{self._values}"


def with_replays(events: Sequence[Event], random: random.Random, count: int) -> list[Event]:
    """The events as a connector writes them that crashes: it continues some events before the last that it wrote."""
    found: list[Event] = []
    crashes = sorted(random.randrange(1, len(events) + 1) for _ in range(count))
    begin = 0
    for crash in crashes:
        found += events[begin:crash]
        begin = random.randint(max(0, crash - 12), crash)
    return found + list(events[begin:])
