"""CREATE TABLE ... LIKE, compared with PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.server.execution.test_create_table_as import done

Connection = psycopg.Connection[Any]

TABLES = (
    "CREATE TABLE t (k int NOT NULL, v varchar(5) DEFAULT 'none', n numeric(8, 2) NOT NULL DEFAULT 1.5, UNIQUE (v))",
    "CREATE VIEW doubled AS SELECT k, n * 2 AS twice, 'x' AS c FROM t",
    "CREATE TABLE checked (a int CHECK (a > 0), b int GENERATED ALWAYS AS (a * 2) STORED,"
    " CONSTRAINT even CHECK (b < 9))",
    "CREATE TABLE also (c int CONSTRAINT even CHECK (c > 0))",
    "CREATE SEQUENCE numbers",
)
STATEMENTS = (
    "CREATE TABLE x (LIKE t)",
    "CREATE TABLE IF NOT EXISTS x (LIKE missing)",
    "CREATE TABLE IF NOT EXISTS x (LIKE t)",
    "INSERT INTO x (k) VALUES (1)",
    "INSERT INTO x (k, n) VALUES (1, 2)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE t INCLUDING DEFAULTS)",
    "INSERT INTO x (k) VALUES (1)",
    "INSERT INTO x (n) VALUES (1)",
    "DROP TABLE x",
    "CREATE TABLE x (a int, LIKE t INCLUDING ALL EXCLUDING DEFAULTS, b text DEFAULT 'b', PRIMARY KEY (a, k))",
    "INSERT INTO x (a, k, n) VALUES (1, 2, 3)",
    "INSERT INTO x (k, n) VALUES (2, 3)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE t INCLUDING COMMENTS INCLUDING STORAGE INCLUDING STATISTICS INCLUDING CONSTRAINTS)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE doubled INCLUDING ALL)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE checked)",
    "INSERT INTO x VALUES (-1), (7)",
    "INSERT INTO x VALUES (1, 1)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE checked INCLUDING CONSTRAINTS)",
    "INSERT INTO x VALUES (-1)",
    "INSERT INTO x VALUES (7, 10)",
    "INSERT INTO x VALUES (7, 8)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE checked INCLUDING GENERATED)",
    "INSERT INTO x VALUES (-1), (7)",
    "INSERT INTO x VALUES (1, 1)",
    "DROP TABLE x",
    "CREATE TABLE x (z int, LIKE checked INCLUDING ALL, CHECK (z = a))",
    "INSERT INTO x VALUES (7, 7)",
    "INSERT INTO x VALUES (1, 2)",
    "INSERT INTO x VALUES (2, 2)",
    "DROP TABLE x",
    "CREATE TABLE x (LIKE checked INCLUDING ALL, CONSTRAINT even CHECK (a > 1))",
    "CREATE TABLE x (LIKE checked INCLUDING ALL, LIKE also INCLUDING ALL)",
    "CREATE TABLE x (LIKE numbers)",
    "CREATE TABLE x (LIKE doubled, LIKE t)",
    "CREATE TABLE x (k int, LIKE t)",
    "CREATE TABLE x (LIKE missing)",
    "CREATE TABLE x (LIKE t INCLUDING)",
    "CREATE TABLE x (LIKE t INCLUDING NOTHING)",
    "CREATE TABLE x LIKE t",
    "CREATE TABLE x (LIKE t, PRIMARY KEY (missing))",
)
SHOWN = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef"
    " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
    " WHERE c.relname = 'x' AND c.relkind = 'r' AND attnum > 0 AND pg_table_is_visible(c.oid)"
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "alike") as connection:
        yield connection


@pytest.mark.sql
def test_tables_are_like_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        different = []
        for sql in (*TABLES, *STATEMENTS):
            for compared in (sql, SHOWN, "TABLE x"):
                if (found := done(ours, compared)) != (expected := done(theirs, compared)):
                    different.append((sql, found, expected))
        assert not different, "\n".join(map(str, different))


def test_keys_are_copied_and_may_be_left_out(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int UNIQUE, b int)")
        ours.execute("CREATE TABLE x (LIKE t INCLUDING INDEXES); CREATE TABLE y (LIKE t)")
        shown = [ours.execute(f"SHOW CREATE TABLE {name}".encode()).fetchone() for name in ("x", "y")]
        assert ["UNIQUE" in row[1] for row in shown if row] == [True, False]


def test_comments_are_copied_and_may_be_left_out(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int, b int); COMMENT ON COLUMN t.b IS 'of b'; COMMENT ON TABLE t IS 'of t'")
        ours.execute("CREATE TABLE x (c int, LIKE t INCLUDING COMMENTS); CREATE TABLE y (LIKE t)")
        comments = (
            "SELECT o.name, c.object_sub_id, c.comment FROM mz_internal.mz_comments c"
            " JOIN mz_catalog.mz_objects o ON o.id = c.id WHERE o.name IN ('x', 'y')"
        )
        assert ours.execute(comments).fetchall() == [("x", 3, "of b")]


def test_select_on_the_original_is_required(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin, psycopg.connect(dsn, autocommit=True) as user:
        admin.execute("CREATE TABLE t (k int); CREATE SCHEMA own; CREATE ROLE copier")
        admin.execute("GRANT USAGE ON SCHEMA public TO copier; GRANT USAGE, CREATE ON SCHEMA own TO copier")
        user.execute("SET ROLE copier")
        try:
            with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table"):
                user.execute("CREATE TABLE own.x (LIKE t)")
            admin.execute("GRANT SELECT ON t TO copier")
            user.execute("CREATE TABLE own.x (LIKE t); DROP TABLE own.x")
        finally:
            user.execute("RESET ROLE")
            admin.execute("REVOKE SELECT ON t FROM copier; REVOKE USAGE ON SCHEMA public FROM copier")
            admin.execute("DROP SCHEMA own CASCADE; DROP ROLE copier")
