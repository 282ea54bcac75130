"""Debezium in a process of its own (`engine.py`), and clients that write to the database that it reads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.registry import Registry

PYTHON = Path(sys.prefix) / "debezium/bin/python"  # `make test-kafka` creates it
ENGINE = Path(__file__).parent / "engine.py"


class Debezium:
    """A connector that may be killed and started again. Its topics are `<name>.<schema>.<table>`.

    `connector`: postgresql, mysql or mariadb.
    """

    def __init__(
        self,
        directory: Path,
        kafka: KafkaBroker,
        registry: Registry,
        port: int,
        name: str,
        connector: str = "postgresql",
    ) -> None:
        self._directory = directory
        self._offsets = f"{name}.offsets"
        self._arguments = [connector, kafka.address, registry.url, str(port), name]
        self.start()

    def lose_position(self) -> None:
        """While it is down: the next start begins with a snapshot."""
        self._offsets += ".lost"

    def start(self) -> None:
        with (self._directory / "debezium.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PYTHON, ENGINE, *self._arguments, self._offsets],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,  # it writes to logs/
            )

    def start_if_ended(self) -> None:
        """Starts it again if it has ended, because its database or Kafka was down."""
        if self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Sends SIGKILL. AssertionError if the process has ended already."""
        ended = self._process.poll()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert ended is None, (self._directory / "debezium.log").read_text()[-5_000:]


ROWS = 20
BALANCE = 100
PAUSE_S = 0.01  # between transactions: Debezium follows about as fast


def create_tables(execute: Callable[[str], Any]) -> None:
    """Tables a and b, with ROWS rows each."""
    execute("DROP TABLE IF EXISTS a, b")
    values = ", ".join(f"({id}, {BALANCE})" for id in range(ROWS))
    for table in "ab":
        execute(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)")
        execute(f"INSERT INTO {table} VALUES {values}")


class Writer(threading.Thread):
    """Moves amounts between tables a and b: the sum of all balances is the same after each transaction.

    It uses the rows whose number is `number` modulo `count`, so that writers do not wait for each other. It connects
    again when the database was killed.
    """

    def __init__(self, connect: Callable[[], Any], random: Random, number: int, count: int) -> None:
        """`connect`: a session of PostgreSQL or MariaDB that commits each statement by itself."""
        super().__init__(name=f"writer {number}")
        self._connect = connect
        self._random = random
        self._number = number
        self._step = count
        self._ids: dict[str, list[int]] = {}
        self._next = ROWS + number
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._write()
            except psycopg.OperationalError:
                self._ended.wait(PAUSE_S)

    def _write(self) -> None:
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            for table in "ab":
                cursor.execute(f"SELECT id FROM {table}")
                self._ids[table] = [id for (id,) in cursor.fetchall() if id % self._step == self._number]
                self._next = max(self._next, *self._ids[table])
            while not self._ended.wait(PAUSE_S):
                cursor.execute("BEGIN")
                for _ in range(self._random.choice((1, 1, 2, 12))):
                    self._change(cursor)
                cursor.execute("COMMIT")

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _change(self, cursor: Any) -> None:
        a, b = (self._random.choice(self._ids[table]) for table in "ab")
        amount = self._random.randint(1, 50)
        cursor.execute("UPDATE a SET balance = balance - %s WHERE id = %s", (amount, a))
        cursor.execute("UPDATE b SET balance = balance + %s WHERE id = %s", (amount, b))
        match self._random.randrange(5):
            case 0:  # an update of the primary key
                table = self._random.choice("ab")
                old, new = self._random.choice(self._ids[table]), self._new_id()
                cursor.execute(f"UPDATE {table} SET id = %s WHERE id = %s", (new, old))
                self._ids[table][self._ids[table].index(old)] = new
            case 1:
                new = self._new_id()
                cursor.execute("INSERT INTO a VALUES (%s, %s)", (new, self._deleted(cursor, "b", b)))
                cursor.execute("INSERT INTO b VALUES (%s, 0)", (b,))
                self._ids["a"].append(new)
            case 2 if len(self._ids["a"]) > 1:
                self._ids["a"].remove(a)
                moved = self._deleted(cursor, "a", a)
                cursor.execute("UPDATE b SET balance = balance + %s WHERE id = %s", (moved, b))
            case 3:  # several rows in a statement, one of them with another primary key
                old, new = self._random.choice(self._ids["b"]), self._new_id()
                ids = ", ".join(map(str, self._ids["b"]))
                changes = f"balance = balance - 1, id = CASE id WHEN {old} THEN {new} ELSE id END"
                cursor.execute(f"UPDATE b SET {changes} WHERE id IN ({ids})")
                cursor.execute("UPDATE a SET balance = balance + %s WHERE id = %s", (len(self._ids["b"]), a))
                self._ids["b"][self._ids["b"].index(old)] = new

    def _deleted(self, cursor: Any, table: str, id: int) -> int:
        """Deletes a row, and returns its balance."""
        cursor.execute(f"SELECT balance FROM {table} WHERE id = %s", (id,))
        balance: int = cursor.fetchone()[0]
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", (id,))
        return balance

    def _new_id(self) -> int:
        self._next += self._step
        return self._next


@contextmanager
def writing(connect: Callable[[], Any], random: Random, count: int = 2) -> Iterator[None]:
    """Writers, until the end of the block."""
    writers = [Writer(connect, Random(random.random()), number, count) for number in range(count)]
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()
