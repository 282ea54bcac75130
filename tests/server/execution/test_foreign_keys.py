"""FOREIGN KEY constraints: the catalog has them as PostgreSQL's has, and no statement enforces them."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import PassingEngine, ServerThread

SHOWN = (
    "SELECT conname, contype, conrelid::regclass::text, confrelid::regclass::text, conindid::regclass::text, conkey, "
    "confkey, confupdtype, confdeltype, confmatchtype, confdelsetcols, condeferrable, condeferred, "
    "pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_namespace n ON n.oid = connamespace "
    "WHERE nspname IN ('public', 'foreign_keys', 'elsewhere') "
    "ORDER BY conname, conrelid::regclass::text",
    "SELECT table_name, constraint_name, constraint_type, is_deferrable, initially_deferred "
    "FROM information_schema.table_constraints "
    "WHERE constraint_schema IN ('public', 'foreign_keys', 'elsewhere') AND constraint_name NOT LIKE '%not_null' "
    "ORDER BY 1, 2",
    "SELECT constraint_name, unique_constraint_name, match_option, update_rule, delete_rule "
    "FROM information_schema.referential_constraints "
    "WHERE constraint_schema IN ('public', 'foreign_keys', 'elsewhere') ORDER BY 1",
    "SELECT table_name, constraint_name, column_name, ordinal_position, position_in_unique_constraint "
    "FROM information_schema.key_column_usage "
    "WHERE constraint_schema IN ('public', 'foreign_keys', 'elsewhere') ORDER BY 1, 2, 4",
    "SELECT table_name, column_name, constraint_name FROM information_schema.constraint_column_usage "
    "WHERE constraint_schema IN ('public', 'foreign_keys', 'elsewhere') AND constraint_name NOT LIKE '%not_null' "
    "ORDER BY 3, 1, 2",
    "SELECT table_name, constraint_name FROM information_schema.constraint_table_usage "
    "WHERE constraint_schema IN ('public', 'foreign_keys', 'elsewhere') ORDER BY 2, 1",
)
TABLES = (
    "CREATE TABLE a (k int PRIMARY KEY, n text UNIQUE, x int, y int, z bigint, UNIQUE (x, y))",
    "CREATE TABLE b (id int REFERENCES a, n varchar(9) REFERENCES a (n) ON DELETE SET NULL, y int, x int, "
    "CONSTRAINT both_of FOREIGN KEY (y, x) REFERENCES a (y, x) MATCH FULL ON UPDATE CASCADE ON DELETE SET NULL (y), "
    "self int UNIQUE REFERENCES b (self) DEFERRABLE INITIALLY DEFERRED)",
    'CREATE TABLE "Odd names" ("the key" smallint PRIMARY KEY, "a b" int REFERENCES "Odd names" ON DELETE RESTRICT, '
    'c int CHECK (c > 0), CHECK (c < "a b"))',
)
COMMANDS = (
    *TABLES,
    "CREATE UNIQUE INDEX by_z ON a (z)",
    "CREATE TABLE d (z bigint REFERENCES a (z) ON UPDATE SET DEFAULT, k int REFERENCES a INITIALLY DEFERRED)",
    "CREATE TABLE bad (k int REFERENCES missing)",
    "CREATE TABLE bad (k int REFERENCES a (none))",
    "CREATE TABLE bad (k int, FOREIGN KEY (none) REFERENCES a)",
    "CREATE TABLE bad (k int REFERENCES a (x))",
    "CREATE TABLE bad (k int REFERENCES d)",
    "CREATE TABLE bad (k text REFERENCES a)",
    "CREATE TABLE bad (k numeric REFERENCES a)",
    "CREATE TABLE bad (k int, j int, FOREIGN KEY (k, j) REFERENCES a (k))",
    "CREATE TABLE bad (k int, j int, FOREIGN KEY (k, j) REFERENCES a (x, x))",
    "CREATE TABLE bad (k int, FOREIGN KEY (k) REFERENCES a ON DELETE SET NULL (j), j int)",
    "CREATE TABLE bad (k int CONSTRAINT c REFERENCES a, CONSTRAINT c FOREIGN KEY (k) REFERENCES a)",
    "CREATE TEMP TABLE t (k int REFERENCES a)",
    "CREATE TEMP TABLE t (k int PRIMARY KEY, up int REFERENCES t)",
    "CREATE TABLE bad (k int REFERENCES t)",
    "CREATE VIEW v AS SELECT k FROM a",
    "CREATE TABLE bad (k int REFERENCES v (k))",
    "DROP VIEW v",
    "DROP TABLE t",
    "CREATE TABLE e (k int)",
    "ALTER TABLE e ADD FOREIGN KEY (k) REFERENCES a",
    "ALTER TABLE e ADD CONSTRAINT e_k_fkey FOREIGN KEY (k) REFERENCES a",
    "ALTER TABLE e ADD CONSTRAINT other FOREIGN KEY (k) REFERENCES a (k) ON DELETE NO ACTION",
    "ALTER TABLE e ADD FOREIGN KEY (k) REFERENCES a",
    "ALTER TABLE e ADD COLUMN l bigint REFERENCES a (z) ON DELETE CASCADE",
    "ALTER TABLE e DROP CONSTRAINT other",
    "ALTER TABLE e DROP CONSTRAINT other",
    "ALTER TABLE e DROP CONSTRAINT IF EXISTS other",
    "ALTER TABLE a RENAME COLUMN k TO the_key",
    "ALTER TABLE b RENAME COLUMN y TO why",
    "ALTER TABLE b RENAME COLUMN self TO itself",
    # Of several keys that refer to the column, PostgreSQL names any one: only b's remains.
    "ALTER TABLE e DROP CONSTRAINT e_k_fkey",
    "ALTER TABLE e DROP CONSTRAINT e_k_fkey1",
    "ALTER TABLE d DROP CONSTRAINT d_k_fkey",
    "ALTER TABLE a ALTER COLUMN the_key TYPE text",
    "ALTER TABLE e ALTER COLUMN l TYPE text",
    "DROP INDEX by_z",
    "ALTER TABLE a DROP COLUMN n",
    "ALTER TABLE a DROP CONSTRAINT a_x_y_key",
    "DROP TABLE a",
    "ALTER TABLE a DROP CONSTRAINT a_x_y_key CASCADE",
    "DROP INDEX by_z CASCADE",
    "ALTER TABLE a DROP COLUMN n CASCADE",
    "ALTER TABLE b DROP COLUMN itself",
    "ALTER TABLE e DROP COLUMN l",
    "CREATE TABLE f (k int REFERENCES a)",
    "ALTER TABLE f RENAME CONSTRAINT f_k_fkey TO renamed",
    "ALTER TABLE f RENAME CONSTRAINT f_k_fkey TO renamed",
    "ALTER TABLE f ADD CONSTRAINT positive CHECK (k > 0)",
    "ALTER TABLE f RENAME CONSTRAINT positive TO renamed",
    "ALTER TABLE f RENAME CONSTRAINT positive TO above_zero",
    "ALTER TABLE a RENAME CONSTRAINT a_pkey TO f",
    "ALTER TABLE a RENAME CONSTRAINT a_pkey TO key_of_a",
    "DROP TABLE d, a, b, e, f",
    "CREATE TABLE a (k int PRIMARY KEY)",
    "CREATE SCHEMA elsewhere",
    "CREATE TABLE elsewhere.a (j int PRIMARY KEY, k int REFERENCES a (k), l int REFERENCES elsewhere.a)",
    "CREATE TABLE elsewhere.c (k int PRIMARY KEY, l int REFERENCES c)",
    "DROP TABLE elsewhere.a",
    "DROP SCHEMA elsewhere",
    "CREATE TABLE b (k int REFERENCES a)",
    "DROP TABLE a CASCADE",
)


NOT_ENFORCED = 'FOREIGN KEY constraints of table "b" are not enforced'


class Outcome:
    """What a session shows after each command."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._notices: list[tuple[str, str | None]] = []
        connection.add_notice_handler(
            lambda notice: self._notices.append((notice.message_primary or "", notice.message_detail))
        )

    def of(self, command: str) -> list[Any]:
        self._notices.clear()
        failure = None
        try:
            self._connection.execute(command.encode())
        except psycopg.Error as error:
            failure = (error.sqlstate, error.diag.message_primary, error.diag.message_detail)
        found: list[Any] = [failure]
        found.append([notice for notice in self._notices if "not enforced" not in notice[0]])
        for query in SHOWN if failure is None else ():
            rows = self._connection.execute(query.encode()).fetchall()
            found.append([tuple(_plain(value) for value in row) for row in rows])
        return found


def _plain(value: object) -> object:
    """PostgreSQL shows expressions with types and parentheses, and has no NOT ENFORCED before version 18."""
    if not isinstance(value, str):
        return value
    text = value.removesuffix(" NOT ENFORCED")
    return text.replace("(", "").replace(")", "") if text.startswith("CHECK") else text


@pytest.mark.sql
def test_the_catalog_is_that_of_postgresql(postgres: str, passing_server: ServerThread) -> None:
    with own_schema(postgres, "foreign_keys") as theirs, psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        one, other = Outcome(ours), Outcome(theirs)
        wrong = []
        for command in COMMANDS:
            found, expected = one.of(command), other.of(command)
            for one_part, other_part in zip_longest(found, expected):
                if one_part != other_part:
                    ours_only = [row for row in one_part or () if row not in (other_part or ())]
                    theirs_only = [row for row in other_part or () if row not in (one_part or ())]
                    wrong.append(f"{command}\n  ours   {ours_only}\n  theirs {theirs_only}")
        assert not wrong, "\n".join(wrong)


def test_a_notice_says_that_they_are_not_enforced(passing_server: ServerThread) -> None:
    notices: list[str | None] = []
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        connection.execute("CREATE TABLE a (k int PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE b (k int REFERENCES a NOT ENFORCED, FOREIGN KEY (k) REFERENCES a NOT ENFORCED)"
        )
        assert not notices
        connection.execute("ALTER TABLE b ADD FOREIGN KEY (k) REFERENCES a ON DELETE CASCADE")
        assert notices == [NOT_ENFORCED]
        connection.execute("INSERT INTO b VALUES (5)")
        with pytest.raises(errors.FeatureNotSupported):
            connection.execute("CREATE TABLE c (k int REFERENCES a ENFORCED)")
        enforced = "SELECT enforced FROM information_schema.table_constraints WHERE constraint_type = 'FOREIGN KEY'"
        assert connection.execute(enforced).fetchall() == [("NO",)] * 3
        assert connection.execute("SELECT convalidated FROM pg_constraint WHERE conname = 'b_k_fkey'").fetchall() == [
            (False,)
        ]


def test_they_survive_a_restart_and_show_create_repeats_them(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for command in TABLES:
            connection.execute(command.encode())
        connection.execute("CREATE SCHEMA other; CREATE TABLE other.c (k int REFERENCES a)")
        connection.execute("COMMENT ON CONSTRAINT c_k_fkey ON other.c IS 'a reference'")
        before = connection.execute(SHOWN[0].encode()).fetchall()
    server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        assert connection.execute(SHOWN[0].encode()).fetchall() == before
        assert connection.execute("SELECT description FROM pg_description").fetchall() == [("a reference",)]
        shown = connection.execute("SHOW CREATE TABLE b").fetchone()
        connection.execute("DROP SCHEMA other CASCADE; DROP TABLE b")
        assert shown is not None
        connection.execute(shown[1].encode())
        assert connection.execute(SHOWN[0].encode()).fetchall() == before
    server.stop()


def test_dropping_a_database_drops_references_between_its_schemas(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE d")
    with psycopg.connect(passing_server.dsn("d"), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.a (k int PRIMARY KEY)")
        connection.execute("CREATE TABLE b (k int REFERENCES s.a)")
        with pytest.raises(errors.DependentObjectsStillExist):
            connection.execute("DROP TABLE s.a")
        connection.execute("DROP SCHEMA s CASCADE")
        assert connection.execute("SELECT count(*) FROM pg_constraint").fetchone() == (0,)
