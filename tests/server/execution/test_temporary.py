"""Temporary tables and views."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from server.spark.engine import SparkEngine
from tests.fix_server import Connect, ServerThread

Connection = psycopg.Connection[Any]


def rows(connection: Connection, query: str) -> list[Any]:
    return sorted(connection.execute(query.encode()).fetchall(), key=repr)


def temporary_schemas(connection: Connection) -> list[Any]:
    return rows(connection, "SELECT name FROM mz_schemas WHERE name LIKE 'pg_temp_%'")


def test_only_the_session_sees_its_temporary_objects(connect: Connect) -> None:
    ours, other, last = connect(), connect(), connect()
    ours.execute("CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
    for number, session in enumerate((ours, other)):
        assert rows(session, "SELECT * FROM t") == [(1,)]
        session.execute("CREATE TEMP TABLE t (k int, v text DEFAULT 'x')")
        session.execute(f"INSERT INTO t (k) VALUES ({number + 10})".encode())
        session.execute("CREATE TEMPORARY VIEW v AS SELECT k + 1 AS k FROM public.t")
    assert rows(ours, "SELECT * FROM t") == rows(ours, "SELECT * FROM pg_temp.t") == [(10, "x")]
    assert rows(other, "SELECT * FROM t") == [(11, "x")]
    assert rows(last, "SELECT * FROM t") == rows(ours, "SELECT * FROM public.t") == [(1,)]
    assert rows(ours, "SELECT * FROM v") == [(2,)]
    for name in ("v", "pg_temp.t", f"pg_temp_{ours.info.backend_pid}.t"):
        with pytest.raises(errors.UndefinedTable):
            last.execute(f"SELECT * FROM {name}".encode())
    assert rows(ours, "SELECT current_schema(), relpersistence FROM pg_class WHERE oid = 't'::regclass") == [
        ("public", "t")
    ]
    kinds = "SELECT table_type FROM information_schema.tables WHERE table_name = 't' ORDER BY 1"
    assert ("LOCAL TEMPORARY",) in rows(ours, kinds)
    ours.execute("CREATE TABLE plain AS SELECT * FROM t; CREATE TEMP TABLE copied AS SELECT * FROM t; DROP TABLE t")
    assert rows(ours, "SELECT * FROM t") == [(1,)]
    assert rows(ours, "SELECT * FROM copied") == rows(last, "SELECT * FROM plain") == [(10, "x")]
    ours.execute(
        "SELECT * INTO TEMP more FROM copied; CREATE INDEX ON more (k); ALTER TABLE more ADD COLUMN n int DEFAULT 2"
    )
    assert rows(ours, "SELECT k, n FROM more WHERE k = 10") == [(10, 2)]
    stream = ours.cursor().stream("SUBSCRIBE copied")
    assert next(stream)[1:] == (1, 10, "x")
    stream.close()
    ours.execute("DISCARD TEMP")
    with pytest.raises(errors.UndefinedTable):
        ours.execute("SELECT * FROM copied")
    other.close()
    for _ in range(100):
        if not temporary_schemas(last):
            break
        time.sleep(0.1)
    assert temporary_schemas(last) == []


def test_views_over_temporary_tables_are_temporary(connect: Connect) -> None:
    ours, other = connect(), connect()
    notices: list[str | None] = []
    ours.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    ours.execute("CREATE TEMP TABLE t (k int); CREATE VIEW v AS SELECT * FROM t")
    assert notices == ['view "v" will be a temporary view']
    with pytest.raises(errors.UndefinedTable):
        other.execute("SELECT * FROM v")
    with pytest.raises(errors.FeatureNotSupported, match="materialized views must not use temporary tables or views"):
        ours.execute("CREATE MATERIALIZED VIEW m AS SELECT * FROM v")
    with pytest.raises(errors.InvalidTableDefinition, match="cannot create temporary relation in non-temporary schema"):
        ours.execute("CREATE TEMP TABLE public.u (k int)")
    with pytest.raises(errors.InvalidTableDefinition, match="ON COMMIT can only be used on temporary tables"):
        ours.execute("CREATE TABLE u (k int) ON COMMIT DROP")


def test_tables_end_with_the_transaction(connect: Connect) -> None:
    ours = connect()
    ours.execute(
        "CREATE TEMP TABLE emptied (k int) ON COMMIT DELETE ROWS;CREATE TEMP TABLE kept (k int) ON COMMIT PRESERVE ROWS"
    )
    ours.execute("BEGIN; CREATE TEMP TABLE dropped ON COMMIT DROP AS SELECT 1 AS k")
    ours.execute("INSERT INTO emptied VALUES (1); INSERT INTO kept SELECT k FROM dropped")
    assert rows(ours, "SELECT * FROM emptied") == rows(ours, "SELECT * FROM dropped") == [(1,)]
    ours.execute("COMMIT")
    assert rows(ours, "SELECT * FROM emptied") == []
    assert rows(ours, "SELECT * FROM kept") == [(1,)]
    with pytest.raises(errors.UndefinedTable):
        ours.execute("SELECT * FROM dropped")
    ours.execute("INSERT INTO emptied VALUES (2)")
    assert rows(ours, "SELECT * FROM emptied") == []
    ours.execute("BEGIN; CREATE TEMP TABLE undone (k int); ROLLBACK; CREATE TEMP TABLE undone (k text)")
    assert rows(ours, "SELECT * FROM undone") == []


def test_a_start_drops_the_objects_of_earlier_sessions(engine: SparkEngine, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, engine)
    try:
        connection = psycopg.connect(server.dsn(), autocommit=True)
        connection.execute("CREATE TABLE p (k int); CREATE TEMP TABLE t (k int); INSERT INTO t VALUES (1)")
        connection.execute("CREATE TEMP VIEW v AS SELECT t.k FROM t, p AS other")
    finally:
        server.stop()
        connection.close()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert temporary_schemas(connection) == []
            assert rows(connection, "SELECT name FROM mz_objects WHERE id LIKE 'u%' AND type <> 'index'") == [("p",)]
            with pytest.raises(errors.UndefinedTable):
                connection.execute("SELECT * FROM t")
    finally:
        server.stop()


def test_sequences_end_with_the_session(connect: Connect) -> None:
    ours, other = connect(), connect()
    ours.execute("CREATE SEQUENCE s START 100")
    ours.execute("CREATE TEMP SEQUENCE s INCREMENT BY 5")
    ours.execute("CREATE TEMPORARY SEQUENCE IF NOT EXISTS s")
    ours.execute("CREATE TEMP TABLE t (k int DEFAULT nextval('s'), l int); CREATE TEMP SEQUENCE owned OWNED BY t.l")
    ours.execute("INSERT INTO t (l) VALUES (nextval('owned')), (nextval('pg_temp.owned'))")
    assert rows(ours, "SELECT * FROM t") == [(1, 1), (6, 2)]
    assert rows(ours, "SELECT nextval('public.s')") == [(100,)]
    assert rows(ours, "SELECT relpersistence FROM pg_class WHERE oid = 's'::regclass") == [("t",)]
    assert rows(other, "SELECT nextval('s')") == [(101,)]
    with pytest.raises(errors.UndefinedTable):
        other.execute("SELECT nextval('owned')")
    with pytest.raises(errors.InvalidTableDefinition):
        ours.execute("CREATE TEMP SEQUENCE public.u")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="in same schema"):
        ours.execute("CREATE TABLE public.kept (a int); CREATE TEMP SEQUENCE v OWNED BY public.kept.a")
    ours.execute("DROP TABLE t")
    with pytest.raises(errors.UndefinedTable):
        ours.execute("SELECT nextval('owned')")
    ours.execute("DISCARD TEMP")
    assert rows(ours, "SELECT nextval('s')") == [(102,)]
    ours.execute("CREATE TEMP SEQUENCE s")
    ours.close()
    deadline = time.monotonic() + 10
    while temporary_schemas(other) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert temporary_schemas(other) == []


def test_a_block_is_not_failed_by_the_end_of_another_session(connect: Connect) -> None:
    """Sessions of an application's requests begin and end all the time, and their temporary tables with them."""
    ended, watching = connect(), connect()
    ended.execute("CREATE TEMP TABLE t (k int); INSERT INTO t VALUES (1); CREATE TEMP VIEW v AS SELECT k FROM t")
    session = connect()
    session.execute("BEGIN; CREATE TEMP TABLE t (k int); CREATE TABLE lasting (k int)")
    ended.close()
    until = time.monotonic() + 30
    while temporary_schemas(watching):
        assert time.monotonic() < until
        time.sleep(0.01)
    session.execute("INSERT INTO t VALUES (2); INSERT INTO lasting VALUES (3); COMMIT")
    assert rows(session, "SELECT k FROM t") == [(2,)]
    assert rows(watching, "SELECT k FROM lasting") == [(3,)]
