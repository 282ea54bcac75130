"""Debezium reads a PostgreSQL that is written to, and repeats messages: the collections equal the tables.

Debezium, PostgreSQL, the broker and the server are killed.
TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.examples import seeds
from tests.fix_postgres import PostgresServer
from tests.kafka.broker.bank import Bank, check_transactions
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.debezium import Debezium, create_tables, writing
from tests.kafka.broker.reading import MOMENTS, Row, connected, serving
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def upstream() -> Iterator[PostgresServer]:
    server = PostgresServer("wal_level=logical")
    yield server
    server.stop()


@contextmanager
def followed(
    upstream: PostgresServer, kafka: KafkaBroker, registry: Registry, directory: Path, name: str
) -> Iterator[tuple[Bank, Debezium]]:
    """Debezium, which has written the snapshot of two tables and a transaction."""
    with psycopg.connect(upstream.dsn, autocommit=True) as session:

        def rows(table: str) -> list[Row]:
            with psycopg.connect(upstream.dsn) as own:  # the other session ends when PostgreSQL is killed
                return own.execute(f"SELECT id, balance FROM {table}".encode()).fetchall()

        create_tables(lambda statement: session.execute(statement.encode()))
        session.execute("ALTER TABLE a REPLICA IDENTITY FULL")
        bank = Bank(kafka, name, "public", rows)
        debezium = Debezium(directory, kafka, registry, upstream.port, name)
        try:
            bank.wait_for_snapshot()
            session.execute("UPDATE a SET balance = balance")
            bank.wait_for_transactions()
            yield bank, debezium
        finally:
            debezium.kill()
            drop_slot(upstream, name)


def drop_slot(upstream: PostgresServer, name: str) -> None:
    """Drops the slot of a connector that was killed: PostgreSQL has ten, and keeps WAL for each."""
    mine = "FROM pg_replication_slots WHERE slot_name = %s"
    with psycopg.connect(upstream.dsn, autocommit=True) as session:
        while session.execute(f"SELECT {mine}".encode(), (name,)).rowcount:
            session.execute(f"SELECT pg_drop_replication_slot(slot_name) {mine} AND NOT active".encode(), (name,))


@pytest.mark.parametrize("seed", seeds(1))
def test_debezium_is_killed(
    upstream: PostgresServer,
    kafka: KafkaBroker,
    registry: Registry,
    connection: psycopg.Connection,
    tmp_path: Path,
    seed: int,
) -> None:
    random = Random(seed)
    with followed(upstream, kafka, registry, tmp_path, f"bank{seed}") as (bank, debezium):
        bank.create(connection)
        start = bank.until_equal(connection)
        with writing(partial(psycopg.connect, upstream.dsn, autocommit=True), random):
            bank.kill_now_and_then(debezium, random, 3)
        check_transactions(connection, start, bank.until_equal(connection))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("victims", ["postgresql", "broker", "postgresql broker debezium"])
def test_what_debezium_needs_is_killed(
    upstream: PostgresServer,
    kafka: KafkaBroker,
    registry: Registry,
    connection: psycopg.Connection,
    tmp_path: Path,
    victims: str,
    seed: int,
) -> None:
    """One client writes. Debezium 3.6.3 can omit a change after it has lost its database.

    It takes changes of a transaction for processed whose LSNs are before the last one that it has read, although
    another transaction was committed between them ("identified as already processed" in its log).
    """
    random, name = Random(seed), f"{victims.replace(' ', '_')}{seed}"
    with followed(upstream, kafka, registry, tmp_path, name) as (bank, debezium):
        bank.create(connection)
        start = bank.until_equal(connection)
        order = [*victims.split(), *random.choices(victims.split(), k=2)]
        with writing(partial(psycopg.connect, upstream.dsn, autocommit=True), random, count=1):
            for victim in order:
                bank.wait_for_changes(random.randint(100, 800), debezium)
                match victim:
                    case "postgresql":
                        upstream.kill()
                        upstream.start()
                    case "broker":
                        kafka.kill()
                        kafka.start()
                    case "debezium":
                        debezium.start_if_ended()
                        debezium.kill()
                        debezium.start()
            bank.wait_for_changes(100, debezium)
        check_transactions(connection, start, bank.until_equal(connection))


@pytest.mark.parametrize("seed", seeds(1))
def test_the_server_is_killed(
    upstream: PostgresServer, kafka: KafkaBroker, registry: Registry, tmp_path: Path, seed: int
) -> None:
    """While Debezium is killed, too."""
    random = Random(seed)
    with followed(upstream, kafka, registry, tmp_path, f"served{seed}") as (bank, debezium):
        with serving(tmp_path / "server") as server, connected(server, kafka, registry) as connection:
            bank.create(connection)
            start = bank.until_equal(connection)
        with writing(partial(psycopg.connect, upstream.dsn, autocommit=True), random):
            for moment in MOMENTS:
                with serving(tmp_path / "server", f"{moment}:{random.randint(4, 40)}") as server:
                    server.process.wait()
                bank.kill_now_and_then(debezium, random, 1)
        with serving(tmp_path / "server") as server, psycopg.connect(server.dsn, autocommit=True) as connection:
            check_transactions(connection, start, bank.until_equal(connection))
