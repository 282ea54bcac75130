"""CREATE TABLE AS and SELECT INTO, compared with PostgreSQL's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema

Connection = psycopg.Connection[Any]

TABLES = (
    "CREATE TABLE t (k int NOT NULL, v text, n numeric(8, 2), c varchar(5), d timestamptz)",
    "INSERT INTO t VALUES (1, 'one', 1.5, 'a', '2020-01-01 00:00Z'), (2, NULL, 2.25, 'b', NULL), (3, 'x', 3, '', NULL)",
    "CREATE VIEW doubled AS SELECT k, k * 2 AS twice FROM t",
)
# They run in this order. After each statement, the definition and rows of the tables are compared.
STATEMENTS = (
    "CREATE TABLE x AS SELECT * FROM t",
    "CREATE TABLE x AS SELECT * FROM t",
    "CREATE TABLE IF NOT EXISTS x AS SELECT 1 AS other",
    "CREATE TABLE IF NOT EXISTS x AS SELECT nope FROM t",
    "INSERT INTO x (v) VALUES ('no constraint is copied')",
    "DROP TABLE x",
    "CREATE TABLE x (a, b) AS SELECT k, v, n + 1 AS n FROM t WHERE k > 1",
    "DROP TABLE x",
    "CREATE TABLE x (a, b) AS SELECT k FROM t",
    "CREATE TABLE x (a, a) AS SELECT k, v FROM t",
    "CREATE TABLE x AS SELECT k, k FROM t",
    "CREATE TABLE x AS SELECT 1, 2",
    "CREATE TABLE x AS SELECT 'a', NULL, 1",
    "CREATE TABLE x AS SELECT 'a', NULL AS b, 1 AS c, 1.5 AS d, 1::smallint AS e, ARRAY['a', 'b'] AS f, true AS g",
    "ALTER TABLE x RENAME TO y",
    "DROP TABLE IF EXISTS x",
    "DROP TABLE y",
    "CREATE TABLE x AS SELECT 'a', count(*), sum(k), avg(n), max(d) FROM t",
    "DROP TABLE x",
    "CREATE TABLE x AS SELECT k + 1 FROM t",
    "DROP TABLE x",
    "CREATE TABLE x AS SELECT k FROM t WITH NO DATA",
    "INSERT INTO x SELECT k FROM t",
    "DROP TABLE x",
    "CREATE TABLE x AS (SELECT k FROM t) WITH DATA",
    "DROP TABLE x",
    "CREATE TABLE x AS VALUES (1, 'a'), (2, NULL)",
    "DROP TABLE x",
    "CREATE TABLE x AS TABLE doubled",
    "DROP TABLE x",
    "CREATE TABLE x AS WITH r (z) AS (SELECT twice FROM doubled) SELECT z, z::text AS w FROM r ORDER BY z LIMIT 2",
    "DROP TABLE x",
    "CREATE TABLE x AS SELECT g FROM generate_series(1, 1000) g",
    "DROP TABLE x",
    "CREATE TABLE x AS SELECT k FROM t WHERE false",
    "DROP TABLE x",
    "CREATE TABLE x AS SELECT 1 / 0 AS a",
    "CREATE TABLE x AS SELECT 1 / (k - 1) AS a FROM t",
    "CREATE TABLE x AS SELECT a FROM missing",
    "CREATE TABLE missing.x AS SELECT 1 AS a",
    "CREATE TABLE x (a int) AS SELECT 1",
    "CREATE TABLE x (a, b)",
    "CREATE TABLE x AS",
    "CREATE TABLE x AS SELECT 1 WITH NO",
    "CREATE TABLE x AS DELETE FROM t",
    "CREATE TABLE x AS SELECT 1 AS a; INSERT INTO x VALUES (2); CREATE TABLE y AS SELECT a + 1 AS a FROM x",
    "DROP TABLE x; DROP TABLE y",
    "SELECT * INTO x FROM t",
    "DROP TABLE x",
    "SELECT k, v AS into_ INTO TABLE x FROM t WHERE k IN (SELECT 2) UNION ALL SELECT 7, 'seven'",
    "SELECT k INTO x FROM t",
    "DROP TABLE x",
    "WITH r AS (SELECT k FROM t) SELECT max(k), percentile_disc(0.5) WITHIN GROUP (ORDER BY k) INTO x FROM r",
    "DROP TABLE x",
    "SELECT 1 AS a, 2 AS b INTO x",
    "DROP TABLE x",
    'SELECT 1 AS "into" INTO "X y"',
    'DROP TABLE "X y"',
    "SELECT * FROM (SELECT k INTO x FROM t) s",
    "INSERT INTO t SELECT k INTO x FROM t",
    "DECLARE p CURSOR FOR SELECT k INTO x FROM t",
    "SELECT k INTO FROM t",
    "BEGIN",
    "INSERT INTO t (k, v) VALUES (4, 'four')",
    "CREATE TABLE x AS SELECT k, v FROM t",
    "UPDATE x SET v = k || 'th' WHERE k > 2",
    "SAVEPOINT s",
    "CREATE TABLE y AS SELECT x.k, twice FROM x JOIN doubled ON doubled.k = x.k",
    "SELECT count(*) INTO z FROM y",
    "ROLLBACK TO s",
    "CREATE TABLE y AS SELECT max(k) FROM x",
    "COMMIT",
    "DROP TABLE x; DROP TABLE y",
    "BEGIN",
    "CREATE TABLE x AS SELECT k FROM t",
    "ROLLBACK",
    "BEGIN READ ONLY",
    "CREATE TABLE x AS SELECT 1 AS a",
    "ROLLBACK",
    "BEGIN READ ONLY",
    "SELECT 1 AS a INTO x",
    "ROLLBACK",
)
SHOWN = (
    "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_attribute a"
    " JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname IN ('x', 'y', 'z', 'X y') AND c.relkind = 'r'"
    " AND attnum > 0 AND pg_table_is_visible(c.oid) ORDER BY 1, attnum"
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "created") as connection:
        yield connection


def done(connection: Connection, sql: str) -> tuple[object, ...]:
    """Returns the command tag and the rows, or SQLSTATE and message of the error."""
    try:
        cursor = connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    return cursor.statusmessage, sorted(map(repr, cursor.fetchall())) if cursor.description else None


@pytest.mark.sql
def test_tables_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        for connection in (theirs, ours):
            connection.execute("SET TimeZone = 'UTC'")
        different: list[tuple[str, object, object]] = []

        def compare(sql: str, after: str = "") -> tuple[object, ...]:
            found, expected = done(ours, sql), done(theirs, sql)
            if found != expected:
                different.append((after or sql, found, expected))
            return expected

        for sql in (*TABLES, *STATEMENTS):
            compare(sql)
            if ours.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                continue
            _, shown = compare(SHOWN, sql)
            assert isinstance(shown, list)
            for name in {row.split("'")[1] for row in shown}:
                compare(f'TABLE "{name}"', sql)
        assert not different, "\n".join(map(str, different))


def test_parameters_and_explain(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        ours.execute("CREATE TABLE t (k int); INSERT INTO t VALUES (1), (2), (3)")
        for prepare in (False, True):
            create = "CREATE TABLE x AS SELECT k, %s::text AS v FROM t WHERE k > %s"
            assert ours.execute(create, ("p", 1), prepare=prepare).statusmessage == "SELECT 2"
            assert ours.execute("SELECT * FROM x ORDER BY k").fetchall() == [(2, "p"), (3, "p")]
            ours.execute("DROP TABLE x", prepare=prepare)
        plan = "\n".join(line for (line,) in ours.execute("EXPLAIN CREATE TABLE x AS SELECT k FROM t"))
        assert "k integer" in plan
        ours.execute("EXPLAIN ANALYZE SELECT k INTO x FROM t WHERE k > 1")
        assert ours.execute("SELECT count(*) FROM x").fetchone() == (2,)
        with pytest.raises(errors.FeatureNotSupported):
            ours.execute("EXPLAIN PHYSICAL PLAN FOR CREATE TABLE y AS SELECT k FROM t")


def test_privileges_are_checked_and_the_creator_owns_the_table(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin, psycopg.connect(dsn, autocommit=True) as user:
        admin.execute("CREATE TABLE t (k int); INSERT INTO t VALUES (1); CREATE ROLE maker; CREATE SCHEMA own")
        user.execute("SET ROLE maker")
        try:
            with pytest.raises(errors.InsufficientPrivilege):
                user.execute("CREATE TABLE own.x AS SELECT 1 AS a")
            admin.execute("GRANT USAGE, CREATE ON SCHEMA own TO maker")
            with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table"):
                user.execute("CREATE TABLE own.x AS SELECT k FROM t")
            admin.execute("GRANT USAGE ON SCHEMA public TO maker; GRANT SELECT ON t TO maker")
            assert user.execute("SELECT k INTO own.x FROM t").statusmessage == "SELECT 1"
            assert user.execute("SELECT * FROM own.x").fetchall() == [(1,)]
            user.execute("DROP TABLE own.x")
        finally:
            user.execute("RESET ROLE")
            admin.execute("REVOKE SELECT ON t FROM maker; REVOKE USAGE ON SCHEMA public FROM maker")
            admin.execute("DROP SCHEMA own CASCADE; DROP ROLE maker")


def test_a_table_is_that_of_one_time(dsn: str) -> None:
    """While rows move between two tables, each copy has them all, and it appears with its rows."""
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(dsn, autocommit=True) as other:
        ours.execute("CREATE TABLE a (k int); CREATE TABLE b (k int); INSERT INTO a VALUES (1), (2), (3)")
        ended = threading.Event()

        def move() -> None:
            while not ended.is_set():
                for source, target in (("a", "b"), ("b", "a")):
                    with other.transaction():
                        other.execute(f"INSERT INTO {target} SELECT * FROM {source}".encode())
                        other.execute(f"DELETE FROM {source}".encode())

        mover = threading.Thread(target=move)
        mover.start()
        try:
            for number in range(5):
                create = f"CREATE TABLE x{number} AS SELECT k FROM a UNION ALL SELECT k FROM b"
                assert ours.execute(create.encode()).statusmessage == "SELECT 3"
        finally:
            ended.set()
            mover.join()


def test_tables_are_created_while_the_catalog_changes(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(dsn, autocommit=True) as other:
        ours.execute("CREATE TABLE t (k int); INSERT INTO t SELECT g FROM generate_series(1, 100) g")
        ended = threading.Event()

        def change() -> None:
            while not ended.is_set():
                other.execute("CREATE TABLE changing (a int)")
                other.execute("DROP TABLE changing")

        changer = threading.Thread(target=change)
        changer.start()
        try:
            for number in range(5):
                assert ours.execute(f"SELECT k INTO x{number} FROM t".encode()).statusmessage == "SELECT 100"
        finally:
            ended.set()
            changer.join()


def test_another_session_sees_definition_and_rows_together(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(dsn, autocommit=True) as other:
        ours.execute("BEGIN; CREATE TABLE x AS SELECT g AS k FROM generate_series(1, 10) g")
        with pytest.raises(errors.UndefinedTable):
            other.execute("TABLE x")
        ours.execute("COMMIT")
        assert other.execute("SELECT count(*) FROM x").fetchone() == (10,)
        other.execute("BEGIN; CREATE TABLE y AS SELECT k FROM x")
        ours.execute("CREATE TABLE y AS SELECT 1 AS k")
        with pytest.raises(errors.SerializationFailure):
            other.execute("COMMIT")
        assert other.execute("TABLE y").fetchall() == [(1,)]
