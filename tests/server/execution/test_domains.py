"""Domains: definitions, constraints on writes, catalogs, and changes while columns have values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_write import done
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]

DEFINITIONS = (
    "CREATE DOMAIN posint AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN posint AS int",
    "CREATE DOMAIN code AS varchar(5) NOT NULL DEFAULT 'abc' CONSTRAINT lower_only CHECK (VALUE ="
    " lower(VALUE)) CHECK (length(VALUE) > 1)",
    "CREATE TABLE t (k posint PRIMARY KEY, c code, n posint DEFAULT 7, x int)",
    "INSERT INTO t (k) VALUES (1)",
    "SELECT * FROM t",
    "INSERT INTO t (k) VALUES (0)",
    "INSERT INTO t VALUES (2, NULL)",
    "INSERT INTO t VALUES (2, 'ABC')",
    "INSERT INTO t VALUES (2, 'a')",
    "INSERT INTO t VALUES (2, 'abcdefgh')",
    "INSERT INTO t VALUES (2, 'xy', NULL), (3, 'zz', -1)",
    "INSERT INTO t VALUES (2, 'xy', NULL)",
    "SELECT * FROM t",
    "CREATE DOMAIN bad AS int CHECK (x > 0)",
    "CREATE DOMAIN bad AS int CHECK (VALUE)",
    "CREATE DOMAIN bad AS nosuch",
    "CREATE DOMAIN bad AS int DEFAULT 'x'",
    "CREATE DOMAIN bad AS int NOT NULL NULL",
    "CREATE DOMAIN bad AS int PRIMARY KEY",
    "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 5)",
    "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 50)",
    "INSERT INTO t VALUES (60, 'xy', 1)",
    "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 50)",
    "ALTER DOMAIN posint RENAME CONSTRAINT small TO smallish",
    "INSERT INTO t VALUES (60, 'xy', 1)",
    "ALTER DOMAIN posint DROP CONSTRAINT small",
    "ALTER DOMAIN posint DROP CONSTRAINT IF EXISTS small",
    "ALTER DOMAIN posint DROP CONSTRAINT smallish",
    "INSERT INTO t VALUES (60, 'xy', 1)",
    "ALTER DOMAIN posint ADD CONSTRAINT nv CHECK (VALUE < 20) NOT VALID",
    "INSERT INTO t VALUES (62, 'xy', NULL)",
    "ALTER DOMAIN posint VALIDATE CONSTRAINT nv",
    "ALTER DOMAIN posint DROP CONSTRAINT nv",
    "ALTER DOMAIN code SET DEFAULT 'def'",
    "INSERT INTO t (k) VALUES (70)",
    "ALTER DOMAIN code DROP DEFAULT",
    "INSERT INTO t (k) VALUES (71)",
    "SELECT * FROM t",
    "SELECT typname, typtype, typbasetype::regtype::text, typtypmod, typnotnull, typdefault, typlen,"
    " typcategory, typndims FROM pg_type WHERE typname IN ('posint', 'code') ORDER BY 1",
    "SELECT attname, format_type(atttypid, atttypmod), attlen FROM pg_attribute WHERE attrelid ="
    " 't'::regclass AND attnum > 0 ORDER BY attnum",
    "SELECT column_name, data_type, domain_schema, domain_name, udt_name, character_maximum_length FROM"
    " information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position",
    "SELECT domain_name, data_type, character_maximum_length, domain_default, udt_name FROM"
    " information_schema.domains WHERE domain_schema = 'public' ORDER BY 1",
    "SELECT domain_name, constraint_name FROM information_schema.domain_constraints WHERE domain_schema ="
    " 'public' ORDER BY 2",
    "DROP DOMAIN posint",
    "DROP TYPE posint",
    "ALTER DOMAIN posint RENAME TO positive",
    "INSERT INTO t VALUES (0, 'xy', 1)",
    "ALTER TABLE t ADD COLUMN z positive DEFAULT 3",
    "ALTER TABLE t ADD COLUMN w positive DEFAULT -3",
    "ALTER TABLE t ADD COLUMN w code",
    "SELECT k, z FROM t WHERE k = 1",
    "CREATE TABLE u (LIKE t)",
    "INSERT INTO u VALUES (0, 'xy', 1)",
    "BEGIN",
    "CREATE DOMAIN txd AS text CHECK (VALUE <> '')",
    "CREATE TABLE txt (a txd)",
    "INSERT INTO txt VALUES ('x')",
    "SAVEPOINT s",
    "INSERT INTO txt VALUES ('')",
    "ROLLBACK TO s",
    "SELECT * FROM txt",
    "ROLLBACK",
    "SELECT 'x'::txd",
    "DROP TABLE t, u",
    "DROP DOMAIN positive, code",
    "DROP DOMAIN positive",
    "DROP DOMAIN IF EXISTS positive",
    "CREATE TYPE e AS ENUM ('a', 'b')",
    "CREATE DOMAIN de AS e CHECK (VALUE > 'a')",
    "CREATE TABLE td (x de)",
    "INSERT INTO td VALUES ('b')",
    "INSERT INTO td VALUES ('a')",
    "ALTER TYPE e RENAME VALUE 'b' TO 'c'",
    "SELECT * FROM td",
    "DROP TYPE e",
    "CREATE DOMAIN em AS text CHECK (VALUE ~ '^[^@]+@[^@]+$')",
)
"""Statements that do in Tidewire what they do in PostgreSQL, without Spark."""
COMPUTED = (
    "CREATE DOMAIN posint AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN code AS varchar(5) NOT NULL DEFAULT 'abc' CONSTRAINT low CHECK (VALUE = lower(VALUE))",
    "CREATE TABLE t (k posint PRIMARY KEY, c code, n posint)",
    "INSERT INTO t SELECT g, 'x' || g, g FROM generate_series(1, 200) g",
    "INSERT INTO t SELECT g, 'x' || g, g FROM generate_series(-1, -500, -1) g",
    "INSERT INTO t SELECT g, NULL, g FROM generate_series(500, 600) g",
    "INSERT INTO t SELECT g, 'X', g FROM generate_series(500, 600) g",
    "UPDATE t SET n = n - 100",
    "UPDATE t SET n = NULL WHERE k = 7",
    "UPDATE t SET c = upper(c) WHERE k = 3",
    "UPDATE t SET c = NULL WHERE k = 3",
    "UPDATE t SET c = DEFAULT, n = 5 WHERE k = 3 RETURNING *",
    "MERGE INTO t USING (VALUES (1)) v(k) ON t.k = v.k WHEN MATCHED THEN UPDATE SET n = -1",
    "INSERT INTO t VALUES (1, 'y', 1) ON CONFLICT (k) DO UPDATE SET n = t.n - 100",
    "SELECT count(*), sum(n) FROM t",
    "SELECT (-5)::posint",
    "SELECT NULL::posint, 5::posint + 1",
    "SELECT NULL::code",
    "SELECT 'abcdefgh'::code",
    "SELECT (n - 150)::posint FROM t WHERE k > 190",
    "SELECT sum((n - 10)::posint) FROM t WHERE k > 190",
    "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 200)",
    "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 300)",
    "ALTER DOMAIN posint SET NOT NULL",
    "UPDATE t SET n = 1 WHERE n IS NULL",
    "ALTER DOMAIN posint SET NOT NULL",
    "INSERT INTO t VALUES (250, 'y', NULL)",
    "ALTER DOMAIN posint DROP NOT NULL",
    "INSERT INTO t VALUES (250, 'y', NULL)",
    "INSERT INTO t VALUES (350, 'y', NULL)",
    "PREPARE p (posint) AS SELECT count(*) FROM t WHERE n = $1::posint",
    "EXECUTE p (5)",
    "EXECUTE p (-5)",
)


@pytest.fixture
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "domains") as connection:
        connection.execute("SET search_path = domains, public")
        yield connection


@pytest.fixture
def passing(passing_server: ServerThread) -> Iterator[Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        yield connection


def test_definitions_are_as_in_postgresql(theirs: Connection, passing: Connection) -> None:
    for statement in DEFINITIONS:
        expected = statement.replace("'public'", "'domains'")
        ours = done(passing, statement)
        found = done(theirs, expected)
        assert str(ours).replace("'public'", "'domains'") == str(found), statement


def test_messages_are_those_of_postgresql(theirs: Connection, passing: Connection) -> None:
    for connection in (theirs, passing):
        connection.execute("CREATE DOMAIN d AS int NOT NULL CHECK (VALUE > 0)")
        connection.execute("CREATE TABLE t (a d, b text); INSERT INTO t VALUES (1, 'x')")
    for statement in (
        "INSERT INTO t VALUES (-1, 'x')",
        "INSERT INTO t VALUES (NULL, 'x')",
        "ALTER DOMAIN d ADD CHECK (VALUE > 5)",
        "ALTER DOMAIN d ADD CONSTRAINT d_check CHECK (VALUE > 0)",
        "ALTER DOMAIN d DROP CONSTRAINT x",
        "CREATE DOMAIN d AS text",
        "CREATE DOMAIN e AS int CHECK (VALUE)",
        "DROP DOMAIN x",
    ):
        with pytest.raises(psycopg.Error) as expected:
            theirs.execute(statement.encode())
        with pytest.raises(psycopg.Error) as found:
            passing.execute(statement.encode())
        for field in ("sqlstate", "message_primary", "message_detail"):
            assert getattr(found.value.diag, field) == getattr(expected.value.diag, field), statement


def test_copy_checks_constraints(passing: Connection) -> None:
    passing.execute("CREATE DOMAIN d AS int DEFAULT 7 CHECK (VALUE > 0); CREATE TABLE t (k int, a d)")
    with passing.cursor().copy("COPY t (k) FROM STDIN") as copy:
        copy.write("1\n2\n")
    with pytest.raises(errors.CheckViolation, match='value for domain d violates check constraint "d_check"'):
        with passing.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("3\t3\n4\t-1\n")
    assert passing.execute("SELECT * FROM t").fetchall() == [(1, 7), (2, 7)]
    cursor = passing.execute("SELECT a FROM t")
    assert cursor.description is not None
    assert cursor.description[0].type_code == 23


def test_what_is_not_supported_is_refused(passing: Connection) -> None:
    passing.execute("CREATE DOMAIN d AS int; CREATE TABLE t (k int)")
    for statement, message in (
        ("CREATE DOMAIN e AS d", "a domain over domain d is not supported"),
        ("CREATE TABLE u (a d[])", "an array of domain d is not supported"),
        ("SELECT '{1}'::d[]", "an array of domain d is not supported"),
        ('CREATE DOMAIN e AS text COLLATE "de_DE"', 'collation "de_DE" is not supported'),
        ("ALTER TABLE t ALTER COLUMN k TYPE d", "changing the type of a column to domain d is not supported"),
    ):
        with pytest.raises(errors.FeatureNotSupported, match=message):
            passing.execute(statement.encode())


def test_domains_survive_a_restart(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(
                "CREATE TYPE e AS ENUM ('a', 'b'); CREATE DOMAIN d AS e DEFAULT 'b' CHECK (VALUE > 'a'::e)"
            )
            connection.execute(
                "CREATE TABLE t (k int, a d); ALTER DOMAIN d RENAME TO later; ALTER TYPE e ADD VALUE 'c'"
            )
            connection.execute("ALTER DOMAIN later SET NOT NULL")
    finally:
        server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("INSERT INTO t VALUES (1, 'c'); INSERT INTO t (k) VALUES (2)")
            with pytest.raises(errors.NotNullViolation, match="domain later does not allow null values"):
                connection.execute("INSERT INTO t VALUES (3, NULL)")
            with pytest.raises(
                errors.CheckViolation, match='value for domain later violates check constraint "d_check"'
            ):
                connection.execute("INSERT INTO t VALUES (3, 'a')")
            assert connection.execute("SELECT * FROM t").fetchall() == [(1, "c"), (2, "b")]
    finally:
        server.stop()


# -- with Spark -----------------------------------------------------------------------------------------------------


def test_computed_values_are_checked_as_in_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        for statement in COMPUTED:
            assert done(ours, statement) == done(theirs, statement), statement
        ours.execute("CREATE MATERIALIZED VIEW m AS SELECT k::posint AS k, c FROM t WHERE k < 3")
        assert ours.execute("SELECT count(*) FROM m").fetchall() == [(2,)]
        with pytest.raises(errors.FeatureNotSupported, match="because materialized view m casts to it"):
            ours.execute("ALTER DOMAIN posint ADD CHECK (VALUE < 1000)")
        with pytest.raises(errors.DependentObjectsStillExist):
            ours.execute("DROP DOMAIN posint")
