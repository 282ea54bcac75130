"""kill -9 of the server and of PostgreSQL, both real processes, while clients transfer money between two tables.

Subscribers resume after each kill. At every timestamp that they received, all money is there. In the end their rows,
those of the server and those of PostgreSQL are the same.
TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.examples import seeds
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerProcess, server_without_spark
from tests.resuming import WAIT_S, Subscriber, Updates

pytestmark = pytest.mark.crash

VICTIMS = (("server",), ("postgres",), ("server",), ("postgres", "server"))  # killed in an order that the seed chooses
CLIENTS = 3
ACCOUNTS, BALANCE = 500, 1_000
TIMES = 25  # received at most between two kills
PAUSE_S = 0.002  # of a client after a transfer
SETUP = f"""
CREATE TABLE payers (id int4 PRIMARY KEY, balance int8 NOT NULL);
CREATE TABLE payees (id int4 PRIMARY KEY, balance int8 NOT NULL);
CREATE TABLE transfers (payer int4 NOT NULL, payee int4 NOT NULL, amount int8 NOT NULL);
INSERT INTO payers SELECT i, {BALANCE} FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO payees SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) i;
CREATE PUBLICATION bank FOR ALL TABLES
"""
TABLES = ("payers", "payees", "transfers")

Rows = Counter[tuple[Any, ...]]


class Client(threading.Thread):
    """Transfers money until `stopped` is set. Connects again after a kill of PostgreSQL."""

    def __init__(self, dsn: str, seed: int, *, transfers_all: bool) -> None:
        super().__init__(daemon=True)
        self._dsn, self._choice, self._transfers_all = dsn, random.Random(seed), transfers_all
        self.stopped = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with closing(psycopg.connect(self._dsn, autocommit=True)) as connection:
                    while not self.stopped.wait(PAUSE_S):
                        connection.execute(self._transaction().encode())
            except psycopg.OperationalError:
                self.stopped.wait(0.05)  # it recovers
            except Exception as error:
                self.failure = error
                return

    def _transaction(self) -> str:
        """Statements that PostgreSQL executes as one transaction."""
        if self._transfers_all and self._choice.random() < 0.01:
            return (
                "UPDATE payers SET balance = balance - 1; UPDATE payees SET balance = balance + 1;"
                "INSERT INTO transfers SELECT id, id, 1 FROM payers"
            )
        payer, payee = (self._choice.randint(1, ACCOUNTS) for _ in range(2))
        amount = self._choice.randint(1, 9)
        return (
            f"UPDATE payers SET balance = balance - {amount} WHERE id = {payer};"
            f"UPDATE payees SET balance = balance + {amount} WHERE id = {payee};"
            f"INSERT INTO transfers VALUES ({payer}, {payee}, {amount})"
        )


@pytest.fixture
def upstream() -> Iterator[PostgresServer]:
    server = PostgresServer("wal_level=logical\nmax_wal_size='64MB'")
    yield server
    server.stop()


@pytest.mark.parametrize("seed", seeds(1))
def test_no_transfer_is_divided_lost_or_repeated(tmp_path: Path, upstream: PostgresServer, seed: int) -> None:
    choice = random.Random(seed)
    with psycopg.connect(upstream.dsn, autocommit=True) as connection:
        connection.execute(SETUP.encode())
    clients = [Client(upstream.dsn, seed * CLIENTS + n, transfers_all=not n) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    subscribers = {table: Subscriber(table) for table in TABLES}
    received = subscribers["transfers"].received
    kills: Counter[str] = Counter()
    server = _started(tmp_path)
    try:
        _create_source(server, upstream.port)
        _follow(server, subscribers)
        for number, victims in enumerate(choice.sample(VICTIMS, len(VICTIMS))):
            # The first kill may come during the snapshot.
            goal = len(_times(received)) + choice.randint(1, TIMES) if number or choice.random() < 0.5 else 0
            subscribers["transfers"].wait(lambda goal=goal: len(_times(received)) >= goal)  # type: ignore[misc]
            kills.update(victims)
            if "postgres" in victims:
                upstream.kill()
            if "server" in victims:
                server.kill()
                for subscriber in subscribers.values():
                    subscriber.join()
                server = _started(tmp_path)
                _follow(server, subscribers)
            if "postgres" in victims:
                upstream.start()
        for client in clients:
            client.stopped.set()
            client.join(WAIT_S)
            assert client.failure is None, client.failure
        with psycopg.connect(upstream.dsn) as connection:
            expected = {table: _rows(connection, table) for table in TABLES}
        count = expected["transfers"].total()
        subscribers["transfers"].wait(lambda: received.total() >= count)
        end = max(_times(received))
        for subscriber in subscribers.values():
            subscriber.wait(lambda subscriber=subscriber: (subscriber.last or 0) > end)  # type: ignore[misc]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for table, subscriber in subscribers.items():
                subscriber.check(connection)
                assert _rows(connection, table) == expected[table], table
                assert _final(subscriber) == expected[table], table
        times = _check_all_times(subscribers)
    finally:
        server.kill()
    assert times >= len(VICTIMS) - 1
    print(f"\nseed {seed}: {dict(kills)}, {count} transfers at {times} times")


def _started(directory: Path) -> ServerProcess:
    return server_without_spark(directory / "data", "--timestamp-interval", "50ms")


def _create_source(server: ServerProcess, port: int) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        address = f"HOST '127.0.0.1', PORT {port}, USER postgres, DATABASE postgres"
        connection.execute(f"CREATE CONNECTION bank TO POSTGRES ({address})".encode())
        connection.execute(
            b"CREATE SOURCE bank_source FROM POSTGRES CONNECTION bank (PUBLICATION 'bank') FOR ALL TABLES"
            b" WITH (RETAIN HISTORY FOR '1 hour')"
        )


def _follow(server: ServerProcess, subscribers: Mapping[str, Subscriber]) -> None:
    for subscriber in subscribers.values():
        subscriber.start(server.dsn)


def _rows(connection: psycopg.Connection[Any], table: str) -> Rows:
    return Counter(connection.execute(f"SELECT * FROM {table}".encode()).fetchall())


def _times(updates: Updates) -> set[int]:
    return {time for time, _ in updates}


def _final(subscriber: Subscriber) -> Rows:
    """The rows that the updates add up to."""
    rows: Rows = Counter()
    for (_, row), diff in subscriber.received.items():
        rows[row] += diff
    return Counter({row: count for row, count in rows.items() if count})


def _check_all_times(subscribers: Mapping[str, Subscriber]) -> int:
    """At each time all money is there, and payees have what was transferred. Returns the number of times.

    Before the snapshot there are no rows.
    """
    sums = dict.fromkeys(TABLES, 0)
    changes: dict[int, Counter[str]] = {}
    for table, subscriber in subscribers.items():
        for (time, row), diff in subscriber.received.items():
            changes.setdefault(time, Counter())[table] += diff * row[-1]
    begin = max(subscriber.as_of for subscriber in subscribers.values())
    times = 0
    has_begun = False
    for time, changed in sorted(changes.items()):
        for table, change in changed.items():
            sums[table] += change
        if time >= begin:
            has_begun = has_begun or any(sums.values())
            expected = ACCOUNTS * BALANCE if has_begun else 0
            assert (sums["payers"] + sums["payees"], sums["payees"]) == (expected, sums["transfers"]), time
            times += 1
    return times
