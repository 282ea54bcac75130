"""Debezium in a process of its own (`engine.py`), and a PostgreSQL that it reads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.registry import Registry

PYTHON = Path(sys.prefix) / "debezium/bin/python"  # `make test-kafka` creates it
ENGINE = Path(__file__).parent / "engine.py"


class Debezium:
    """A connector that may be killed and started again. Its topics are `<name>.<schema>.<table>`."""

    def __init__(self, directory: Path, kafka: KafkaBroker, registry: Registry, port: int, name: str) -> None:
        self._directory = directory
        self._arguments = [kafka.address, registry.url, str(port), name]
        self.start()

    def start(self) -> None:
        with (self._directory / "debezium.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PYTHON, ENGINE, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,  # it writes to logs/
            )

    def kill(self) -> None:
        """Sends SIGKILL. AssertionError if the process has ended already."""
        ended = self._process.poll()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert ended is None, (self._directory / "debezium.log").read_text()[-5_000:]


ROWS = 20
BALANCE = 100


class Writer(threading.Thread):
    """Moves amounts between tables a and b of PostgreSQL: the sum of all balances is the same after each transaction.

    It uses the rows whose number is `number` modulo `count`, so that writers do not wait for each other.
    """

    def __init__(self, dsn: str, random: Random, number: int, count: int) -> None:
        super().__init__(name=f"writer {number}")
        self._dsn = dsn
        self._random = random
        self._ids = {table: list(range(number, ROWS, count)) for table in "ab"}
        self._next = ROWS + number
        self._step = count
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            while not self._ended.is_set():
                with connection.transaction():
                    for _ in range(self._random.choice((1, 1, 2, 12))):
                        self._change(connection)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _change(self, connection: psycopg.Connection) -> None:
        a, b = (self._random.choice(self._ids[table]) for table in "ab")
        amount = self._random.randint(1, 50)
        connection.execute("UPDATE a SET balance = balance - %s WHERE id = %s", (amount, a))
        connection.execute("UPDATE b SET balance = balance + %s WHERE id = %s", (amount, b))
        match self._random.randrange(4):
            case 0:  # an update of the primary key
                table = self._random.choice("ab")
                old, new = self._random.choice(self._ids[table]), self._new_id()
                connection.execute(f"UPDATE {table} SET id = %s WHERE id = %s".encode(), (new, old))
                self._ids[table][self._ids[table].index(old)] = new
            case 1:
                new = self._new_id()
                moved = "WITH moved AS (DELETE FROM b WHERE id = %s RETURNING balance)"
                connection.execute(f"{moved} INSERT INTO a SELECT %s, balance FROM moved".encode(), (b, new))
                connection.execute("INSERT INTO b VALUES (%s, 0)", (b,))
                self._ids["a"].append(new)
            case 2 if len(self._ids["a"]) > 1:
                self._ids["a"].remove(a)
                moved = "WITH moved AS (DELETE FROM a WHERE id = %s RETURNING balance)"
                update = "UPDATE b SET balance = b.balance + moved.balance FROM moved WHERE id = %s"
                connection.execute(f"{moved} {update}".encode(), (a, b))

    def _new_id(self) -> int:
        self._next += self._step
        return self._next


@contextmanager
def writing(dsn: str, random: Random, count: int = 2) -> Iterator[None]:
    """Writers, until the end of the block."""
    writers = [Writer(dsn, Random(random.random()), number, count) for number in range(count)]
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()
