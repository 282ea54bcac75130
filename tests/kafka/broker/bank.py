"""Sources of the tables that `debezium.Writer` writes to, and the checks that they equal the tables at rest.

Tables a (classic) and b (upsert) have whole transactions, and a_alone and b_alone do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import psycopg

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.debezium import BALANCE, ROWS, Debezium
from tests.kafka.broker.reading import AVRO, Row, until

Rows = Callable[[str], list[Row]]
"""The rows of a table in the upstream database."""


class Bank:
    """Topics `<name>.<schema>.<table>` of tables a and b, and of their transactions."""

    def __init__(self, kafka: KafkaBroker, name: str, schema: str, rows: Rows) -> None:
        self._kafka = kafka
        self._name = name
        self._schema = schema
        self._rows = rows
        for topic in (self._topic("a"), self._topic("b"), self._transactions):
            kafka.create_topic(topic)

    def _topic(self, table: str) -> str:
        return f"{self._name}.{self._schema}.{table}"

    @property
    def _transactions(self) -> str:
        return f"{self._name}.transaction"

    def wait_for_snapshot(self) -> None:
        while any(self._kafka.end(self._topic(table)) < ROWS for table in "ab"):
            pass

    def wait_for_transactions(self) -> None:
        """Waits until the topic of transactions has a schema."""
        while not self._kafka.end(self._transactions):
            pass

    def wait_for_changes(self, count: int, debezium: Debezium | None = None) -> None:
        """Waits until the topics have `count` more messages. Starts `debezium` if it has ended."""
        target = self._end + count
        while self._end < target:
            if debezium is not None:
                debezium.start_if_ended()

    @property
    def _end(self) -> int:
        return sum(self._kafka.end(self._topic(table)) for table in "ab")

    def create(self, connection: psycopg.Connection) -> None:
        """The sources."""
        source = "CREATE SOURCE {} FROM KAFKA CONNECTION kafka"
        connection.execute(f"{source.format('merged')} (TRANSACTION TOPIC '{self._transactions}')".encode())
        for table, envelope in (("a", "DEBEZIUM"), ("b", "DEBEZIUM UPSERT")):
            topic, format = self._topic(table), f"{AVRO} ENVELOPE {envelope}"
            connection.execute(f'CREATE TABLE {table} FROM SOURCE merged (REFERENCE "{topic}") {format}'.encode())
            connection.execute(f"ALTER TABLE {table} SET (RETAIN HISTORY FOR '1 hour')".encode())
            connection.execute(f"{source.format(f'{table}_alone')} (TOPIC '{topic}') {format}".encode())

    def until_equal(self, connection: psycopg.Connection, *sources: str) -> int:
        """Waits until the sources have the tables' rows, and returns the timestamp of the last change. Default: all."""
        names = sources or ("a", "b", "a_alone", "b_alone")
        return max(until(connection, name, self._rows(name[0])) for name in names)

    def kill_now_and_then(self, debezium: Debezium, random: Random, times: int) -> None:
        """Sends SIGKILL to Debezium, some messages after it was started, and starts it again."""
        for _ in range(times):
            self.wait_for_changes(random.randint(100, 800))
            debezium.kill()
            debezium.start()


def check_transactions(connection: psycopg.Connection, start: int, end: int) -> None:
    """No timestamp from `start` to `end` has a part of a transaction: the sum of all balances is the same at each."""
    changes: Counter[int] = Counter()
    for table in "ab":
        statement = f"COPY (SUBSCRIBE {table} AS OF {start} UP TO {end + 1}) TO STDOUT"
        with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for time, diff, _, balance in (map(int, row) for row in copy.rows()):
                changes[time] += diff * balance
    total, sums = 0, {}
    for time, change in sorted(changes.items()):
        total += change
        sums[time] = total
    assert len(sums) > 2, "the transactions were committed together"
    assert sums == dict.fromkeys(sums, 2 * ROWS * BALANCE)
