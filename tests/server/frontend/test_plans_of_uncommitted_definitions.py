"""Plans that were made with definitions that are not committed are not used with others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[Any]


@pytest.fixture
def sessions(dsn: str) -> Iterator[tuple[Connection, Connection]]:
    with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as other:
        one.execute("CREATE TABLE t (k int, v text)")
        one.execute("INSERT INTO t VALUES (1, 'one')")
        yield one, other


def prepared(connection: Connection, statement: str) -> list[Any]:
    """Executes a statement that the client prepares at the first call."""
    return connection.execute(statement.encode(), (1,), prepare=True).fetchall()


def test_a_rolled_back_definition_and_one_of_another_session(sessions: tuple[Connection, Connection]) -> None:
    one, other = sessions
    read, write = "SELECT k FROM t WHERE k = %s", "INSERT INTO t (k) VALUES (%s) RETURNING k"
    one.execute("BEGIN")
    one.execute("CREATE TABLE rolled_back (a int)")
    assert prepared(one, read) == [(1,)]
    one.execute("PREPARE named AS SELECT k FROM t")
    assert prepared(one, write) == [(1,)]
    one.pgconn.exec_(b"ROLLBACK")  # after execute("ROLLBACK") psycopg frees all prepared statements
    other.execute("ALTER TABLE t DROP COLUMN v")  # has the version of the definition that was rolled back
    assert prepared(one, read) == [(1,)]
    assert one.execute("EXECUTE named").fetchall() == [(1,)]
    assert prepared(one, write) == [(1,)]
    assert one.execute("SELECT * FROM t").fetchall() == [(1,), (1,)]


def test_definitions_of_one_transaction(sessions: tuple[Connection, Connection]) -> None:
    one, _ = sessions
    one.execute("BEGIN")
    one.execute("CREATE VIEW w AS SELECT k FROM t")
    one.execute("PREPARE named AS SELECT k FROM w")
    assert one.execute("EXECUTE named").fetchall() == [(1,)]
    one.execute("CREATE OR REPLACE VIEW w AS SELECT k + 1 AS k FROM t")
    assert one.execute("EXECUTE named").fetchall() == [(2,)]
    one.execute("SAVEPOINT s")
    one.execute("CREATE OR REPLACE VIEW w AS SELECT k + 2 AS k FROM t")
    assert one.execute("EXECUTE named").fetchall() == [(3,)]
    one.execute("ROLLBACK TO s")
    assert one.execute("EXECUTE named").fetchall() == [(2,)]
    one.execute("COMMIT")
    assert one.execute("EXECUTE named").fetchall() == [(2,)]
