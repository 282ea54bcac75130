"""What a role without privileges learns about the relations and sessions of others."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread
from tests.server.authorization.test_roles import Sessions

SECRET = "hunter2"


@pytest.fixture
def sessions(passing_server: ServerThread) -> Iterator[Sessions]:
    sessions = Sessions(passing_server.dsn())
    boss = sessions["boss"]
    boss.execute("CREATE TABLE t (a int, b text); CREATE INDEX i ON t (a)")
    boss.execute(f"INSERT INTO t SELECT n, '{SECRET}' FROM (VALUES (1), (2), (3)) AS v(n)".encode())
    _ = sessions["ann"]
    yield sessions
    sessions.close()


@pytest.mark.parametrize(
    "table",
    [
        "mz_arrangements",
        "mz_dataflow_operators",
        "mz_hydration_statuses",
        "mz_source_statistics",
        "mz_sink_statistics",
    ],
)
def test_numbers_of_rows_are_for_superusers(table: str, sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    for query in (
        f"SELECT * FROM mz_internal.{table}",
        f"SELECT s.* FROM mz_internal.{table} AS s, pg_class",
        f"SUBSCRIBE mz_internal.{table}",
        f"EXPLAIN SELECT * FROM mz_internal.{table}",
    ):
        with pytest.raises(errors.InsufficientPrivilege, match=f"permission denied for table {table}"):
            ann.execute(query.encode())
    boss.execute(f"SELECT s.* FROM mz_internal.{table} AS s, pg_class".encode())
    boss.execute(f"CREATE VIEW shown AS SELECT * FROM mz_internal.{table}; GRANT SELECT ON shown TO ann".encode())
    ann.execute("SELECT * FROM shown")


@pytest.mark.parametrize(
    ("table", "hidden", "shown"),
    [
        ("mz_dataflows", "error", "id, hydrated"),
        ("mz_dataflow_lags", "bytes", "lag_ms"),
        ("mz_sink_statuses", "error", "status"),
        ("mz_source_frontiers", "open_updates", "upstream_frontier"),
        ("mz_source_statuses", "error", "status"),
    ],
)
def test_columns_with_numbers_and_values_of_rows_are_for_superusers(
    table: str, hidden: str, shown: str, sessions: Sessions
) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("GRANT CREATE ON SCHEMA public TO ann")
    for query in (
        f"SELECT * FROM mz_internal.{table}",
        f"SELECT {hidden} FROM mz_internal.{table}",
        f"SELECT 1 FROM mz_internal.{table} WHERE {hidden} IS NULL",
        f"SELECT s.{hidden} FROM mz_internal.{table} AS s, pg_class",
        f"SUBSCRIBE mz_internal.{table}",
        f"SUBSCRIBE (SELECT {hidden} FROM mz_internal.{table})",
        f"CREATE MATERIALIZED VIEW copied AS SELECT {hidden} FROM mz_internal.{table}",
        f"EXPLAIN SELECT {hidden} FROM mz_internal.{table}",
    ):
        with pytest.raises(errors.InsufficientPrivilege, match=f"permission denied for table {table}"):
            ann.execute(query.encode())
    ann.execute(f"SELECT {shown} FROM mz_internal.{table}".encode())
    ann.execute(f"SELECT count(*) FROM mz_internal.{table}".encode())
    ann.execute(f"CREATE VIEW own AS SELECT {hidden} FROM mz_internal.{table}".encode())
    with pytest.raises(errors.InsufficientPrivilege, match=f"permission denied for table {table}"):
        ann.execute("SELECT * FROM own")
    boss.execute(f"CREATE VIEW shown AS SELECT * FROM mz_internal.{table}; GRANT SELECT ON shown TO ann".encode())
    ann.execute("SELECT * FROM shown")


def test_sizes_are_of_the_roles_relations(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    size = "SELECT pg_relation_size(oid), pg_total_relation_size(oid) FROM pg_class WHERE relname = 't'"
    ((own, total),) = boss.execute(size.encode()).fetchall()
    assert own > 0
    assert ann.execute(size.encode()).fetchall() == [(0, 0)]
    assert ann.execute(
        "SELECT pg_database_size(datname) FROM pg_database WHERE datname = 'materialize'"
    ).fetchall() == [(0,)]
    boss.execute("GRANT SELECT (a) ON t TO ann")
    assert ann.execute(size.encode()).fetchall() == [(own, total)]


@pytest.mark.long
def test_statements_of_other_sessions_are_not_shown(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute(f"PREPARE secret AS SELECT '{SECRET}'".encode())
    boss.execute("BEGIN")
    boss.execute(f"DECLARE c CURSOR FOR SUBSCRIBE (SELECT a FROM t WHERE b = '{SECRET}')".encode())
    boss.execute("FETCH 1 c")
    tables = [
        f"{schema}.{name}"
        for schema, name in ann.execute(
            "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname IN ('pg_catalog', 'mz_catalog', 'mz_internal', 'information_schema')"
        )
    ]
    assert len(tables) > 100
    read = 0
    for table in tables:
        try:
            rows = ann.execute(f"SELECT * FROM {table}".encode()).fetchall()
        except errors.InsufficientPrivilege:
            continue
        except psycopg.Error as error:
            assert error.sqlstate == "0A000", table  # noqa: PT017
            continue
        read += 1
        assert SECRET not in str(rows), table
    assert read > 100
    boss.execute("ROLLBACK")


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN SELECT count(*) FROM t",
        "EXPLAIN ANALYZE SELECT a FROM t",
        "EXPLAIN UPDATE t SET a = 1",
        "EXPLAIN DELETE FROM t",
        "EXPLAIN INSERT INTO t VALUES (1)",
        "EXPLAIN INDEX i",
        "EXPLAIN OPTIMIZED PLAN FOR SELECT a FROM t",
        "EXPLAIN PHYSICAL PLAN FOR SELECT a FROM t",
        "EXPLAIN TIMESTAMP FOR SELECT a FROM t",
        "EXPLAIN SUBSCRIBE t",
        "SELECT 1 FROM t WHERE 1 / (a - 1) > 0",
        "CREATE HOLD h ON t",
        "BEGIN; LOCK TABLE t",
        "COPY t TO STDOUT",
        "CREATE TABLE x (LIKE t)",
        "TABLE t",
        "SELECT t FROM t",
        "SELECT exists (SELECT FROM t)",
    ],
)
def test_statements_without_privileges_are_denied(statement: str, sessions: Sessions) -> None:
    sessions["boss"].execute("GRANT CREATE ON SCHEMA public TO ann")
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table t"):
        sessions["ann"].execute(statement.encode())
