"""A server with damaged files: reads of the damaged relation fail, others succeed, and no value is ever wrong.

Each test damages a copy of the same data directory and opens it with a server in this process, without Spark.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

pytestmark = pytest.mark.attacks

INTERVAL_S = 0.05
SMALL, LARGE = 40, 3_000
TABLES = ("small", "large", "held")
Rows = Counter[tuple[Any, ...]]


def connect(server: ServerThread) -> psycopg.Connection[Any]:
    return psycopg.connect(server.dsn(), autocommit=True)


def read(connection: psycopg.Connection[Any], relation: str) -> Rows:
    """The rows of the snapshot of a SUBSCRIBE, which needs no Spark."""
    ((moment,),) = connection.execute("SELECT mz_now()").fetchall()
    query = f"SUBSCRIBE {relation} AS OF {int(moment)} UP TO {int(moment) + 1}"
    return Counter(row[2:] for row in connection.execute(query.encode()).fetchall())


def history(connection: psycopg.Connection[Any], at: int) -> Counter[tuple[Any, ...]]:
    """The changes of `held` after `at`, with their times."""
    ((moment,),) = connection.execute("SELECT mz_now()").fetchall()
    query = f"SUBSCRIBE held WITH (SNAPSHOT false) AS OF {at} UP TO {int(moment) + 1}"
    return Counter(connection.execute(query.encode()).fetchall())


class Original:
    """A data directory and its contents. `held` has merged history, `large` is a file, the others are in SQLite."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        server = ServerThread(directory, PassingEngine(), INTERVAL_S)
        with connect(server) as connection:
            connection.execute("CREATE TABLE small (a int, b text)")
            connection.execute("CREATE TABLE large (a int, b text)")
            connection.execute("CREATE TABLE held (a int)")
            connection.execute("CREATE TABLE untouched (a int)")
            connection.execute("CREATE INDEX i ON small (a)")
            connection.execute("INSERT INTO untouched VALUES (1), (2)")
            connection.execute("CREATE HOLD h ON held")
            ((at,),) = connection.execute("SELECT mz_now()").fetchall()
            self.at = int(at)
            for number in range(SMALL):
                connection.execute(f"INSERT INTO held VALUES ({number})".encode())
            with connection.cursor() as cursor, cursor.copy("COPY small FROM STDIN") as copy:
                copy.write("".join(f"{n}\tsmall {n}\n" for n in range(SMALL)))
            with connection.cursor() as cursor, cursor.copy("COPY large FROM STDIN") as copy:
                copy.write("".join(f"{n}\tlarge {n} {'x' * 50}\n" for n in range(LARGE)))
            (held,) = (item.id for item in server.app.coordinator.state.items.values() if item.name == "held")
            log = server.app.coordinator.log
            while all(batch.spans is None for batch in log.batches(held)):
                connection.execute("SHOW HOLDS")
            self.rows = {table: read(connection, table) for table in (*TABLES, "untouched")}
            self.history = history(connection, self.at)
        server.stop()
        assert len(self.history) == SMALL
        assert len(self.payload_files(directory)) == 1

    def payload_files(self, directory: Path) -> list[Path]:
        return sorted((directory / "payloads").iterdir())

    def copy(self, directory: Path) -> Path:
        shutil.copytree(self.directory, directory)
        directory.chmod(0o700)
        return directory


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(tmp_path_factory.mktemp("original"))


@contextmanager
def served(directory: Path) -> Iterator[psycopg.Connection[Any]]:
    server = ServerThread(directory, PassingEngine(), INTERVAL_S)
    try:
        with connect(server) as connection:
            yield connection
    finally:
        server.stop()


def check(directory: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "server", "check", "--data-dir", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def examine(original: Original, connection: psycopg.Connection[Any], damaged: str) -> None:
    """Reads of `damaged` fail, and everything else is unchanged."""
    for table, rows in original.rows.items():
        if table == damaged:
            for _ in range(2):
                with pytest.raises(psycopg.errors.DataCorrupted) as refused:
                    read(connection, table)
                assert f'table "materialize.public.{table}" is damaged' in str(refused.value)
                assert "tidewire check" in str(refused.value.diag.message_hint)
        else:
            assert read(connection, table) == rows
    if damaged == "held":
        with pytest.raises(psycopg.errors.DataCorrupted):
            history(connection, original.at)
    else:
        assert history(connection, original.at) == original.history
    connection.execute("INSERT INTO untouched VALUES (3)")
    assert read(connection, "untouched") == original.rows["untouched"] + Counter([(3,)])


def test_an_undamaged_copy_has_no_errors(original: Original, tmp_path: Path) -> None:
    directory = original.copy(tmp_path / "data")
    code, printed = check(directory)
    assert (code, "0 damaged" in printed) == (0, True), printed
    with served(directory) as connection:
        for table, rows in original.rows.items():
            assert read(connection, table) == rows
        assert history(connection, original.at) == original.history


def flip(file: Path, at: int, count: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        old = opened.read(count)
        opened.seek(at)
        opened.write(bytes(byte ^ 0xFF for byte in old))


def flipped_early(file: Path) -> None:
    flip(file, 10, 40)


def flipped_late(file: Path) -> None:
    flip(file, file.stat().st_size - 60, 40)


def flipped_values(file: Path) -> None:
    """Changes bytes in the middle of the texts, which only a checksum detects."""
    flip(file, file.stat().st_size // 2, 40)


def one_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def deleted(file: Path) -> None:
    file.unlink()


def extended(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"\0" * 100)


@pytest.mark.parametrize(
    "damage", [flipped_early, flipped_late, flipped_values, one_bit, cut, emptied, deleted, extended]
)
def test_a_damaged_payload_file(original: Original, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    directory = original.copy(tmp_path / "data")
    (file,) = original.payload_files(directory)
    damage(file)
    with served(directory) as connection:
        examine(original, connection, "large")
    code, printed = check(directory)
    assert code == 1
    assert "damaged: batch" in printed
    assert 'table "materialize.public.large"' in printed


@pytest.mark.parametrize("table", ["small", "held"])
@pytest.mark.parametrize("seed", range(3))
def test_damaged_small_payloads_in_sqlite(original: Original, tmp_path: Path, table: str, seed: int) -> None:
    """Bytes anywhere in a payload are changed in SQLite's file, so that SQLite does not detect it."""
    directory = original.copy(tmp_path / "data")
    dice = random.Random(seed)
    catalog = directory / "catalog.sqlite"
    with closing(sqlite3.connect(catalog)) as connection, connection:
        ((payload,),) = connection.execute(
            "SELECT payload FROM batches WHERE collection = (SELECT id FROM items WHERE name = ?) "
            "ORDER BY length(payload) DESC LIMIT 1",
            (table,),
        ).fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = catalog.read_bytes()
    length = 24  # shorter than the part of any payload in one page
    while content.count(piece := payload[(start := dice.randrange(len(payload) - length)) : start + length]) != 1:
        pass
    flip(catalog, content.index(piece) + dice.randrange(length - 4), 4)
    with served(directory) as connection_:
        examine(original, connection_, table)
    code, printed = check(directory)
    assert code == 1
    assert f'table "materialize.public.{table}"' in printed


@pytest.mark.parametrize("column", ["time", "rows", "times", "payload_crc"])
def test_a_damaged_row_of_a_batch(original: Original, tmp_path: Path, column: str) -> None:
    """With a wrong time, a batch's rows would be missing or would appear too early."""
    directory = original.copy(tmp_path / "data")
    with closing(sqlite3.connect(directory / "catalog.sqlite")) as connection, connection:
        value = "zeroblob(length(times))" if column == "times" else f"{column} - 1"
        changed = connection.execute(
            f"UPDATE batches SET {column} = {value} WHERE id = (SELECT max(id) FROM batches WHERE times IS NOT NULL "
            "AND collection = (SELECT id FROM items WHERE name = 'held'))"
        )
        assert changed.rowcount == 1
    with served(directory) as connection_:
        examine(original, connection_, "held")
    assert check(directory)[0] == 1


def test_a_running_server_whose_file_is_truncated_or_deleted(original: Original, tmp_path: Path) -> None:
    directory = original.copy(tmp_path / "data")
    (file,) = original.payload_files(directory)
    with served(directory) as connection:
        assert read(connection, "large") == original.rows["large"]
        cut(file)
        examine(original, connection, "large")
        deleted(file)
        with pytest.raises(psycopg.errors.DataCorrupted):
            read(connection, "large")
