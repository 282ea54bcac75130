"""`tidewire backup` of a directory that a server uses."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

import tidewire
from tests.fix_server import ServerProcess, server_without_spark

TEXT = "x" * 100_000  # long enough for files of payloads


def backup(data: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server", "backup", str(target), "--data-dir", str(data)], capture_output=True, text=True
    )


def transfer(server: ServerProcess, done: threading.Event) -> int:
    """Moves rows between two tables until `done`. Returns the number of transactions."""
    count = 0
    with psycopg.connect(server.dsn) as connection:
        while not done.is_set() or count < 10:
            count += 1
            connection.execute("INSERT INTO a VALUES (%s, %s)", [count, TEXT])
            connection.execute("INSERT INTO b VALUES (%s, %s)", [count, TEXT])
            connection.commit()
    return count


@pytest.mark.long
def test_a_backup_while_a_client_writes(tmp_path: Path) -> None:
    """It has the whole of each transaction that it has, the hold and the history that the hold keeps."""
    server = server_without_spark(tmp_path / "data")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (n int, x text); CREATE TABLE b (n int, x text)")
        connection.execute("CREATE HOLD h ON a")
        connection.execute("INSERT INTO a VALUES (0, 'held')")
        ((held,),) = connection.execute("SELECT mz_now()").fetchall()
    done, counts = threading.Event(), list[int]()
    writer = threading.Thread(target=lambda: counts.append(transfer(server, done)))
    writer.start()
    try:
        result = backup(tmp_path / "data", tmp_path / "copy")
    finally:
        done.set()
        writer.join()
        server.kill()
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(": 0 damaged\n")
    copy = server_without_spark(tmp_path / "copy")
    try:
        with psycopg.connect(copy.dsn, autocommit=True) as connection:
            rows = sorted(connection.execute("SELECT n, x FROM b").fetchall())
            assert rows == [(number, TEXT) for number in range(1, len(rows) + 1)]
            assert 0 < len(rows) <= counts[0]
            assert sorted(connection.execute("SELECT n, x FROM a").fetchall()) == [(0, "held"), *rows]
            assert connection.execute(f"SELECT n, x FROM a AS OF {held}".encode()).fetchall() == [(0, "held")]
            connection.execute("INSERT INTO a VALUES (-1, 'later')")
    finally:
        copy.stop()


def test_the_error_of_a_backup(tmp_path: Path) -> None:
    result = backup(tmp_path / "none", tmp_path / "copy")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f'tidewire: "{tmp_path}/none" is not a data directory')
    assert not (tmp_path / "copy").exists()


def test_a_client_that_has_received_more_than_the_backup_does_not_continue(tmp_path: Path) -> None:
    """It has changes that the restored server lacks. One that has received less continues."""
    server = server_without_spark(tmp_path / "data")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("CREATE HOLD h ON t")
        with tidewire.subscribe(server.dsn, "t") as batches:
            connection.execute("INSERT INTO t VALUES (1)")
            first = batch_with((1,), batches)
            connection.execute(f"ALTER HOLD h ADVANCE TO {first.progress - 1}".encode())
            assert backup(tmp_path / "data", tmp_path / "copy").returncode == 0
            connection.execute("INSERT INTO t VALUES (2)")
            second = batch_with((2,), batches)
    server.stop()
    for row in (3, 4):  # also after a second start
        server = server_without_spark(tmp_path / "copy")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            with tidewire.subscribe(server.dsn, "t", token=second.token) as batches:
                with pytest.raises(tidewire.TokenTooOld):
                    next(batches)
            with pytest.raises(errors.DataException, match="could not find a valid timestamp") as refused:
                connection.execute(f"SELECT n FROM t AS OF {second.progress - 1}".encode())
            assert "restored from a backup" in str(refused.value.diag.message_detail)
            rows = connection.execute(f"SELECT n FROM t AS OF AT LEAST {second.progress - 1}".encode()).fetchall()
            assert (2,) not in rows
            with tidewire.subscribe(server.dsn, "t", token=first.token) as batches:
                connection.execute("INSERT INTO t VALUES (%s)", [row])
                assert batch_with((row,), batches).progress > second.progress
        server.stop()


def batch_with(row: tuple[int], batches: Iterator[tidewire.AnyBatch[Any]]) -> tidewire.AnyBatch[Any]:
    """The batch that inserts a row."""
    return next(batch for batch in batches if any(change.row == row for change in getattr(batch, "changes", ())))
