"""Transaction blocks that define objects at the same time: both commit, unless they concern the same object."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from server.spark.engine import SparkEngine
from tests.fix_server import Connect, ServerThread

Connection = psycopg.Connection[Any]
SESSIONS, ROUNDS = 6, 8


@pytest.fixture
def ours(connect: Connect) -> Connection:
    return connect()


@pytest.fixture
def other(connect: Connect) -> Connection:
    return connect()


def rows(connection: Connection, query: str) -> list[Any]:
    return sorted(connection.execute(query.encode()).fetchall(), key=repr)


def test_two_blocks_with_temporary_tables_commit(ours: Connection, other: Connection) -> None:
    for session, value in ((ours, 1), (other, 2)):
        session.execute(f"BEGIN; CREATE TEMP TABLE t (k int); INSERT INTO t VALUES ({value})")
    ours.execute("COMMIT")
    other.execute("COMMIT")
    assert rows(ours, "SELECT k FROM t") == [(1,)]
    assert rows(other, "SELECT k FROM t") == [(2,)]


def test_definitions_of_others_keep_what_a_block_defines(engine: SparkEngine, tmp_path: Path) -> None:
    """Also after a restart: the ids of both are different."""
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn()) as ours, psycopg.connect(server.dsn(), autocommit=True) as other:
            other.execute("CREATE TABLE base (k int PRIMARY KEY, v int); INSERT INTO base VALUES (1, 10)")
            ours.execute("CREATE TABLE mine (k serial PRIMARY KEY, v text)")
            ours.execute("INSERT INTO mine (v) VALUES ('a'), ('b')")
            ours.execute("CREATE MATERIALIZED VIEW sums AS SELECT sum(v) AS s FROM base")
            other.execute("CREATE TABLE theirs (k serial PRIMARY KEY); INSERT INTO theirs DEFAULT VALUES")
            other.execute("CREATE MATERIALIZED VIEW counts AS SELECT count(*) AS n FROM base")
            other.execute("CREATE INDEX ON base (v); CREATE ROLE someone; GRANT SELECT ON base TO someone")
            other.execute("INSERT INTO base VALUES (2, 20)")
            ours.execute("CREATE INDEX ON mine (v)")
            ours.commit()
            other.execute("INSERT INTO base VALUES (3, 30); INSERT INTO mine (v) VALUES ('c')")
            with pytest.raises(errors.UniqueViolation):
                other.execute("INSERT INTO mine VALUES (2, 'again')")
            expected = [[(60,)], [(3,)], [(1, "a"), (2, "b"), (3, "c")], [(1,)]]
            queries = ("SELECT s FROM sums", "SELECT n FROM counts", "SELECT * FROM mine", "SELECT * FROM theirs")
            assert [rows(other, query) for query in queries] == expected
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert [rows(connection, query) for query in queries] == expected
            connection.execute("INSERT INTO base VALUES (4, 40)")
            assert rows(connection, "SELECT s, n FROM sums, counts") == [(100, 4)]
            assert rows(connection, "SELECT has_table_privilege('someone', 'base', 'SELECT')") == [(True,)]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("block", "meanwhile"),
    [
        ("CREATE TABLE same (k int)", "CREATE TABLE same (k int)"),
        ("CREATE VIEW v AS SELECT * FROM t", "ALTER TABLE t ADD COLUMN added int"),
        ("CREATE VIEW v AS SELECT * FROM t", "DROP TABLE t"),
        ("ALTER TABLE t ADD COLUMN added int", "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"),
        ("DROP TABLE t", "CREATE VIEW v AS SELECT * FROM t"),
        ("DROP TYPE mood", "CREATE TABLE moods (m mood)"),
        ("INSERT INTO t VALUES (1); CREATE TABLE x (k int)", "ALTER TABLE t ADD CHECK (k > 1)"),
        ("INSERT INTO t VALUES (1), (1); CREATE TABLE x (k int)", "ALTER TABLE t ADD UNIQUE (k)"),
        ("INSERT INTO t VALUES (1), (1); CREATE TABLE x (k int)", "CREATE UNIQUE INDEX ON t (k)"),
        ("INSERT INTO t VALUES (1); CREATE TABLE x (k int)", "ALTER TABLE t ALTER k TYPE bigint"),
        ("INSERT INTO t VALUES (1); CREATE TABLE x (k int)", "DROP TABLE t"),
    ],
)
def test_blocks_that_concern_a_changed_object_fail(
    ours: Connection, other: Connection, block: str, meanwhile: str
) -> None:
    ours.execute("CREATE TABLE t (k int); CREATE TYPE mood AS ENUM ('sad', 'happy')")
    ours.execute(f"BEGIN; {block}".encode())
    other.execute(meanwhile.encode())
    with pytest.raises(errors.SerializationFailure):
        ours.execute("COMMIT")
    if "DROP TABLE t" not in meanwhile:
        assert rows(other, "SELECT k FROM t") == []


def test_many_sessions_define_at_the_same_time(connect: Connect) -> None:
    """As the threads of a tool that builds tables, each in transactions of its own with temporary tables."""

    def work(number: int) -> None:
        session = connect()
        for turn in range(ROUNDS):
            with session.transaction():
                session.execute("CREATE TEMP TABLE staged (k int) ON COMMIT DROP")
                session.execute("INSERT INTO staged VALUES (1), (2)")
                session.execute(f"CREATE TABLE built_{number}_{turn} (k int PRIMARY KEY)".encode())
                session.execute(f"INSERT INTO built_{number}_{turn} SELECT k FROM staged".encode())
                if turn:
                    session.execute(f"DROP TABLE built_{number}_{turn - 1}".encode())

    with ThreadPoolExecutor(SESSIONS) as threads:
        for done in [threads.submit(work, number) for number in range(SESSIONS)]:
            done.result()
    watching = connect()
    found = rows(watching, "SELECT relname FROM pg_class WHERE relname LIKE 'built%' AND relkind = 'r'")
    assert found == [(f"built_{number}_{ROUNDS - 1}",) for number in range(SESSIONS)]
    for (name,) in found:
        assert rows(watching, f"SELECT k FROM {name}") == [(1,), (2,)]
