"""Keys that are checked at COMMIT: large changes, other sessions, pipelines and restarts.

`tests/sql/sessions/deferrable_keys.sql` compares single statements with PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import Connect, ServerThread
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]
MANY = 20_000
TABLE = "CREATE TABLE t (k bigint CONSTRAINT t_k UNIQUE DEFERRABLE INITIALLY DEFERRED, v int)"


@pytest.fixture
def ours(connect: Connect) -> Connection:
    connection = connect()
    connection.execute(TABLE)
    return connection


def copied(connection: Connection, start: int, count: int) -> None:
    with connection.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write("".join(f"{k}\t1\n" for k in range(start, start + count)))


def count(connection: Connection) -> Any:
    return connection.execute("SELECT count(*), count(DISTINCT k) FROM t").fetchone()


@pytest.mark.parametrize("rows", [10, MANY])
def test_duplicates_may_exist_until_commit(ours: Connection, rows: int) -> None:
    copied(ours, 0, rows)
    with ours.transaction():
        copied(ours, rows - 5, rows)
        assert count(ours) == (2 * rows, 2 * rows - 5)
        ours.execute("DELETE FROM t WHERE k >= %s", (rows - 5,))
        copied(ours, rows - 5, rows)
    assert count(ours) == (2 * rows - 5,) * 2
    ours.execute("BEGIN")
    copied(ours, 0, rows)
    with pytest.raises(errors.UniqueViolation) as caught:
        ours.execute("COMMIT")
    assert caught.value.diag.constraint_name == "t_k"
    ours.execute("BEGIN")
    copied(ours, 3 * rows, rows)
    copied(ours, 4 * rows - 1, 1)
    with pytest.raises(errors.UniqueViolation, match="t_k") as caught:
        ours.execute("SET CONSTRAINTS t_k IMMEDIATE")
    assert caught.value.diag.message_detail == f"Key (k)=({4 * rows - 1}) already exists."
    ours.execute("ROLLBACK")
    assert count(ours) == (2 * rows - 5,) * 2


def test_a_commit_of_another_session_is_compared(ours: Connection, connect: Connect) -> None:
    other = connect()
    ours.execute("BEGIN; INSERT INTO t VALUES (1, 1), (2, 1)")
    other.execute("INSERT INTO t VALUES (2, 2)")
    with pytest.raises(errors.UniqueViolation, match="t_k"):
        ours.execute("COMMIT")
    assert ours.execute("SELECT * FROM t").fetchall() == [(2, 2)]


def test_a_pipeline_and_a_query_string_are_checked_at_their_end(ours: Connection) -> None:
    with ours.pipeline():
        ours.execute("INSERT INTO t VALUES (1, 1)")
        ours.execute("INSERT INTO t VALUES (1, 2)")
        ours.execute("UPDATE t SET k = 2 WHERE v = 2")
    assert ours.execute("SELECT * FROM t ORDER BY k").fetchall() == [(1, 1), (2, 2)]
    with pytest.raises(errors.UniqueViolation, match="t_k"):
        ours.execute("INSERT INTO t VALUES (3, 3); INSERT INTO t VALUES (3, 4)")
    assert count(ours) == (2, 2)
    ours.execute("INSERT INTO t VALUES (3, 3); INSERT INTO t VALUES (3, 4); DELETE FROM t WHERE v = 4")
    assert count(ours) == (3, 3)


def test_a_rolled_back_savepoint_leaves_no_duplicate(ours: Connection) -> None:
    with ours.transaction():
        ours.execute("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(ZeroDivisionError), ours.transaction():
            ours.execute("INSERT INTO t VALUES (1, 2)")
            raise ZeroDivisionError
    assert count(ours) == (1, 1)


def test_keys_remain_deferrable_after_a_restart(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    finally:
        server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            (_, shown) = connection.execute("SHOW CREATE TABLE t").fetchone() or ("", "")
            assert "CONSTRAINT t_k UNIQUE (k) DEFERRABLE INITIALLY DEFERRED" in shown
            with connection.transaction():
                connection.execute("INSERT INTO t VALUES (1, 3)")
                connection.execute("DELETE FROM t WHERE v = 1")
            with pytest.raises(errors.UniqueViolation), connection.transaction():
                connection.execute("INSERT INTO t VALUES (1, 4)")
    finally:
        server.stop()
