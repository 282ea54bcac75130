"""Debezium reads a MariaDB, is killed, and loses its position: the collections equal the tables.

Debezium's connector for MariaDB names transactions by GTIDs, the one for MySQL by positions in the binary log.
TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.examples import seeds
from tests.kafka.broker.bank import Bank, check_transactions
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.debezium import Debezium, create_tables, writing
from tests.kafka.broker.mariadb import IS_INSTALLED, WITHOUT_GTIDS, MariaDbServer
from tests.kafka.broker.reading import Row
from tests.kafka.registry import Registry

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not IS_INSTALLED, reason="needs mariadbd and mariadb-install-db"),
]


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_debezium_is_killed_and_repeats_its_snapshot(
    kafka: KafkaBroker, registry: Registry, connection: psycopg.Connection, tmp_path: Path, connector: str, seed: int
) -> None:
    random, name = Random(seed), f"{connector}{seed}"
    server = MariaDbServer(WITHOUT_GTIDS if connector == "mysql" else None)
    try:
        with server.connect() as session, session.cursor() as cursor:

            def rows(table: str) -> list[Row]:
                cursor.execute(f"SELECT id, balance FROM {table}")
                return list(cursor.fetchall())

            create_tables(cursor.execute)
            bank = Bank(kafka, name, "bank", rows)
            debezium = Debezium(tmp_path, kafka, registry, server.port, name, connector)
            try:
                bank.wait_for_snapshot()
                cursor.execute("UPDATE a SET balance = balance + 1")
                cursor.execute("UPDATE a SET balance = balance - 1")
                bank.wait_for_transactions()
                bank.create(connection)
                start = bank.until_equal(connection)
                for _ in range(3):
                    with writing(server.connect, random, count=1):
                        bank.kill_now_and_then(debezium, random, 1)
                    cursor.execute("FLUSH BINARY LOGS")  # begins a new file
                    end = bank.until_equal(connection)
                check_transactions(connection, start, end)
                with writing(server.connect, random, count=1):
                    bank.wait_for_changes(100)
                    debezium.kill()
                    debezium.lose_position()
                    debezium.start()
                    bank.kill_now_and_then(debezium, random, 2)
                # With TRANSACTION TOPIC an unfinished transaction waits for a later one, which there may not be.
                # DEBEZIUM UPSERT keeps rows that were deleted between the lost position and the new snapshot.
                bank.until_equal(connection, "a_alone")
            finally:
                debezium.kill()
    finally:
        server.stop()
