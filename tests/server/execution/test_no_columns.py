"""Queries without columns return as many rows as in PostgreSQL, through statements, cursors and COPY."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

QUERIES = {
    "SELECT": 1,
    "SELECT UNION SELECT": 1,
    "SELECT UNION ALL SELECT": 2,
    "SELECT EXCEPT SELECT": 0,
    "SELECT FROM t": 3,
    "SELECT FROM t WHERE k > 1": 2,
    "SELECT FROM t LIMIT 2": 2,
    "SELECT FROM t OFFSET 1": 2,
    "SELECT FROM t UNION ALL SELECT FROM t": 6,
    "SELECT FROM t, t u": 9,
    "SELECT FROM pg_namespace WHERE nspname = 'pg_catalog'": 1,
    "SELECT FROM generate_series(1, 20000)": 20_000,
}


@pytest.fixture
def connections(dsn: str, postgres: str) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(postgres, autocommit=True) as theirs:
        for connection in (ours, theirs):
            connection.execute("CREATE SCHEMA without_columns")
            connection.execute("SET search_path = without_columns")
            connection.execute("CREATE TABLE t (k int)")
            connection.execute("INSERT INTO t VALUES (1), (2), (3)")
        yield ours, theirs
        theirs.execute("DROP SCHEMA without_columns CASCADE")


@pytest.mark.long
def test_rows_without_columns_are_counted_as_in_postgresql(
    connections: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    for sql, count in QUERIES.items():
        for connection in connections:
            for prepare in (False, True):
                cursor = connection.execute(sql.encode(), prepare=prepare)
                assert (cursor.rowcount, cursor.statusmessage) == (count, f"SELECT {count}"), sql
                assert cursor.description == []
            for format, rows in (("text", count), ("csv", count)):
                with connection.cursor().copy(f"COPY ({sql}) TO STDOUT (FORMAT {format})".encode()) as copy:
                    assert b"".join(copy) == b"\n" * rows, sql
            with connection.cursor().copy(f"COPY ({sql}) TO STDOUT (FORMAT binary)".encode()) as copy:
                assert b"".join(copy)[19:] == b"\0\0" * count + b"\xff\xff", sql


def test_a_cursor_returns_rows_without_columns(connections: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    for connection in connections:
        with connection.transaction():
            connection.execute("DECLARE c CURSOR FOR SELECT FROM t")
            fetched = [connection.execute(f"FETCH {count} c".encode()).statusmessage for count in ("2", "ALL", "1")]
            assert fetched == ["FETCH 2", "FETCH 1", "FETCH 0"]


def test_rows_without_columns_can_be_inserted_and_counted(
    connections: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    for connection in connections:
        assert connection.execute("SELECT count(*) FROM (SELECT FROM t) s").fetchone() == (3,)
        assert connection.execute("INSERT INTO t SELECT FROM t").rowcount == 3
        assert connection.execute("SELECT count(*) FROM t WHERE k IS NULL").fetchone() == (3,)


def test_subscriptions_and_materialized_views_without_columns_are_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        for statement in ("SUBSCRIBE (SELECT FROM t)", "CREATE MATERIALIZED VIEW m AS SELECT FROM t"):
            with pytest.raises(errors.FeatureNotSupported) as refusal:
                connection.execute(statement.encode())
            assert refusal.value.diag.message_hint
