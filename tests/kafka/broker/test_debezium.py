"""Debezium reads a PostgreSQL that is written to, is killed, and repeats messages: the collections equal the tables.

TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.fix_postgres import PostgresServer
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.debezium import BALANCE, ROWS, Debezium, writing
from tests.kafka.broker.reading import AVRO, FACTOR, Row, until
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def upstream() -> Iterator[PostgresServer]:
    server = PostgresServer("wal_level=logical")
    yield server
    server.stop()


def rows_of(session: psycopg.Connection, table: str) -> list[Row]:
    return session.execute(f"SELECT id, balance FROM {table}".encode()).fetchall()


@pytest.mark.parametrize("seed", range(FACTOR))
def test_debezium_is_killed(
    upstream: PostgresServer,
    kafka: KafkaBroker,
    registry: Registry,
    connection: psycopg.Connection,
    tmp_path: Path,
    seed: int,
) -> None:
    name, random = f"bank{seed}", Random(seed)
    topics = {table: f"{name}.public.{table}" for table in "ab"}
    for topic in (*topics.values(), f"{name}.transaction"):
        kafka.create_topic(topic)
    with psycopg.connect(upstream.dsn, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS a, b")
        for table in "ab":
            session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, balance int8 NOT NULL)".encode())
            session.execute(f"INSERT INTO {table} SELECT n, {BALANCE} FROM generate_series(0, {ROWS - 1}) n".encode())
        session.execute("ALTER TABLE a REPLICA IDENTITY FULL")
        debezium = Debezium(tmp_path, kafka, registry, upstream.port, name)
        try:
            while kafka.end(topics["a"]) < ROWS or kafka.end(topics["b"]) < ROWS:
                pass
            session.execute("UPDATE a SET balance = balance")  # the first transaction: its topic gets a schema
            while not kafka.end(f"{name}.transaction"):
                pass
            create(connection, name)
            start = max(until(connection, table, rows_of(session, table)) for table in "ab")
            with writing(upstream.dsn, random):
                for _ in range(3):
                    target = kafka.end(topics["a"]) + random.randint(50, 400)
                    while kafka.end(topics["a"]) < target:
                        pass
                    debezium.kill()
                    debezium.start()
            end = 0
            for table in ("a", "b", "a_alone", "b_alone"):
                end = max(end, until(connection, table, rows_of(session, table[0])))
        finally:
            debezium.kill()
    sums = sums_of(connection, start, end + 1)
    assert len(sums) > 10
    assert sums == dict.fromkeys(sums, 2 * ROWS * BALANCE)  # a part of a transaction has another sum


def create(connection: psycopg.Connection, name: str) -> None:
    """Tables a (classic) and b (upsert) with whole transactions, and a_alone and b_alone without."""
    source = "CREATE SOURCE {} FROM KAFKA CONNECTION kafka"
    connection.execute(f"{source.format('merged')} (TRANSACTION TOPIC '{name}.transaction')".encode())
    for table, envelope in (("a", "DEBEZIUM"), ("b", "DEBEZIUM UPSERT")):
        topic, format = f"{name}.public.{table}", f"{AVRO} ENVELOPE {envelope}"
        connection.execute(f'CREATE TABLE {table} FROM SOURCE merged (REFERENCE "{topic}") {format}'.encode())
        connection.execute(f"ALTER TABLE {table} SET (RETAIN HISTORY FOR '1 hour')".encode())
        connection.execute(f"{source.format(f'{table}_alone')} (TOPIC '{topic}') {format}".encode())


def sums_of(connection: psycopg.Connection, start: int, end: int) -> dict[int, int]:
    """The sum of the balances of a and b at each time from `start` to before `end` at which one of them changes."""
    changes: Counter[int] = Counter()
    for table in "ab":
        statement = f"COPY (SUBSCRIBE {table} AS OF {start} UP TO {end}) TO STDOUT"
        with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for time, diff, _, balance in (map(int, row) for row in copy.rows()):
                changes[time] += diff * balance
    total, found = 0, {}
    for time, change in sorted(changes.items()):
        total += change
        found[time] = total
    return found
