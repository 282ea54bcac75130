"""Messages for a source of each envelope, and the rows that the sources must have after them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from random import Random

import confluent_kafka
import psycopg

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.reading import AVRO, Row, until
from tests.kafka.debezium import Database, Event, envelope_schema
from tests.kafka.outputs import Message
from tests.kafka.records import Record, send
from tests.kafka.registry import Registry

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
REPEATED_MAX = 12  # events that a connector writes again after a crash


class Connector:
    """Debezium, which writes the changes of a simulated database to a topic, and repeats some of them now and then."""

    def __init__(self, random: Random, partitions: int) -> None:
        self.database = Database(random)
        self._partitions = partitions
        self._random = random
        self._recent: deque[Event] = deque(maxlen=REPEATED_MAX)

    def snapshot(self) -> list[Message]:
        self.database.insert(6)
        events = self.database.snapshot()
        if self._partitions == 1:  # a snapshot that is interrupted and begins again
            self.database.transaction()
            events = events[:4] + self.database.snapshot()
        return [event.message(partitions=self._partitions) for event in events]

    def changes(self) -> list[Message]:
        """The messages of a transaction."""
        repeated = list(self._recent)[-self._random.randint(1, REPEATED_MAX) :] if self._random.random() < 0.3 else []
        events = self.database.transaction()
        self._recent.extend(events)
        found = []
        for event in [*repeated, *events]:
            found.append(event.message(partitions=self._partitions))
            if event.op == "d":
                found.append(event.tombstone(self._partitions))
        return found

    @property
    def rows(self) -> list[Row]:
        return list(self.database.rows.items())


class Load:
    """Writes to topics `<name>_append`, `_upsert`, `_dbz_upsert` and `_dbz`, and knows the rows of their sources."""

    def __init__(self, kafka: KafkaBroker, registry: Registry, name: str, random: Random) -> None:
        self.written = threading.Event()
        """Messages were written since it was cleared."""
        self._random = random
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka.address, "linger.ms": 1, "enable.idempotence": True, "log_level": 2}
        )
        self.topics = {envelope: f"{name}_{envelope}" for envelope in ("append", "upsert", "dbz_upsert", "dbz")}
        partitions = {envelope: random.randint(1, 3) for envelope in self.topics}
        for envelope, topic in self.topics.items():
            kafka.create_topic(topic, partitions[envelope])
        self._key = registry.register(f"{self.topics['dbz']}-key", KEY)
        self._value = registry.register(f"{self.topics['dbz']}-value", envelope_schema("postgres"))
        registry.register(f"{self.topics['dbz_upsert']}-key", KEY)
        registry.register(f"{self.topics['dbz_upsert']}-value", envelope_schema("postgres"))
        self._partitions = partitions
        self._appended = 0
        self._upserted: dict[str, str] = {}
        self._connectors = {envelope: Connector(random, partitions[envelope]) for envelope in ("dbz_upsert", "dbz")}
        for envelope, connector in self._connectors.items():
            self._send(envelope, self._framed(connector.snapshot()))

    def create(self, connection: psycopg.Connection) -> None:
        """Sources of the topics' names."""
        for envelope, clauses in (
            ("append", "FORMAT TEXT"),
            ("upsert", "KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT"),
            ("dbz_upsert", f"{AVRO} ENVELOPE DEBEZIUM UPSERT"),
            ("dbz", f"{AVRO} ENVELOPE DEBEZIUM"),
        ):
            topic = self.topics[envelope]
            connection.execute(
                f"CREATE SOURCE {topic} FROM KAFKA CONNECTION kafka (TOPIC '{topic}') {clauses}".encode()
            )

    def write(self) -> None:
        """Writes some messages to each topic, and waits until they are acknowledged."""
        numbers = range(self._appended, self._appended + self._random.randint(1, 20))
        self._appended = numbers.stop
        count = self._partitions["append"]
        self._send("append", [Record(None, b"%d" % number, number % count) for number in numbers])
        self._send("upsert", [self._upsert() for _ in range(self._random.randint(1, 20))])
        for envelope, connector in self._connectors.items():
            self._send(envelope, self._framed(connector.changes()))
        self.written.set()

    def _upsert(self) -> Record:
        number = self._random.randrange(30)
        key, value = f"k{number}", None if self._random.random() < 0.3 else f"v{self._random.random()}"
        if value is None:
            self._upserted.pop(key, None)
        else:
            self._upserted[key] = value
        return Record(key.encode(), value and value.encode(), number % self._partitions["upsert"])

    def _framed(self, messages: Sequence[Message]) -> list[Record]:
        """The messages in Confluent's wire format."""
        key, value = (b"\0" + id.to_bytes(4, "big") for id in (self._key, self._value))
        return [
            Record(m.key and key + m.key, None if m.value is None else value + m.value, m.partition) for m in messages
        ]

    def _send(self, envelope: str, records: Sequence[Record]) -> None:
        send(self._producer, self.topics[envelope], records)

    @property
    def joined(self) -> list[Row]:
        """The rows of both Debezium topics, joined by their keys."""
        left, right = (connector.database.rows for connector in self._connectors.values())
        return [(id, left[id], right[id]) for id in left.keys() & right.keys()]

    def check(self, connection: psycopg.Connection) -> None:
        """Waits until each source has its rows, once."""
        until(connection, self.topics["append"], [(str(number),) for number in range(self._appended)])
        until(connection, self.topics["upsert"], list(self._upserted.items()))
        for envelope, connector in self._connectors.items():
            until(connection, self.topics[envelope], connector.rows)
