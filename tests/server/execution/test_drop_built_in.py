"""DROP of kinds of object that users cannot create: PostgreSQL's notices with IF EXISTS, and its errors without."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_statements_of_tools import answer

NAMED = """
FUNCTION {} f
FUNCTION {} f()
FUNCTION {} s.f(int, text)
FUNCTION {} f(integer, a double precision, IN b varchar(10), OUT c int, VARIADIC d text[])
FUNCTION {} f(timestamp with time zone, INOUT x numeric(4, 2)[], char, "char", name, date)
FUNCTION {} f(nothing)
FUNCTION {} f(nowhere.nothing)
FUNCTION {} f(trigger), g(int)
FUNCTION {} f(inet, tsvector, point[], regclass)
FUNCTION {} nowhere.f(int)
FUNCTION {} f(mood, mood[])
FUNCTION {} lower(text)
FUNCTION {} length
FUNCTION {} pg_catalog.lower(text)
FUNCTION {} lower(text, int)
PROCEDURE {} p
PROCEDURE {} p(int, text)
ROUTINE {} p(int)
ROUTINE {} p
AGGREGATE {} a(int)
AGGREGATE {} a(*)
AGGREGATE {} a(x int ORDER BY y int)
AGGREGATE {} sum(int)
TRIGGER {} a ON t
TRIGGER {} a ON nothing
TRIGGER {} a ON nowhere.t
RULE {} a ON t
RULE {} a ON nothing
POLICY {} a ON t CASCADE
POLICY {} a ON nothing
EVENT TRIGGER {} a
EXTENSION {} a, b
EXTENSION {} a RESTRICT
LANGUAGE {} a
PROCEDURAL LANGUAGE {} a
LANGUAGE {} sql
COLLATION {} a
COLLATION {} nowhere.a
CONVERSION {} a
CAST {} (int AS date)
CAST {} (text AS inet)
CAST {} (nothing AS text)
CAST {} (int AS bigint)
OPERATOR {} === (int, text)
OPERATOR {} pg_catalog.=== (NONE, integer)
OPERATOR {} + (int, int)
OPERATOR CLASS {} a USING btree
OPERATOR CLASS {} a USING nothing
OPERATOR CLASS {} int4_ops USING btree
OPERATOR FAMILY {} a USING hash
ACCESS METHOD {} a
STATISTICS {} a, b
FOREIGN DATA WRAPPER {} a
FOREIGN TABLE {} a
SERVER {} a
PUBLICATION {} a
SUBSCRIPTION {} a
TABLESPACE {} a
TEXT SEARCH CONFIGURATION {} a
TEXT SEARCH DICTIONARY {} a
TEXT SEARCH PARSER {} a
TEXT SEARCH TEMPLATE {} a
TRANSFORM {} FOR int LANGUAGE sql
TRANSFORM {} FOR int LANGUAGE nothing
"""
STATEMENTS = [f"DROP {line.format(word)}" for line in NAMED.split("\n")[1:-1] for word in ("IF EXISTS", "")]


def noted(connection: psycopg.Connection[Any]) -> list[str | None]:
    """The messages of the notices that the connection will receive."""
    notices: list[str | None] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    return notices


def test_they_are_answered_as_by_postgresql(postgres: str, passing_server: ServerThread) -> None:
    with (
        own_schema(postgres, "drops") as theirs,
        psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
    ):
        for connection in (theirs, ours):
            connection.execute("CREATE TABLE t (a int)")
            connection.execute("CREATE TYPE mood AS ENUM ('ok')")
        ours.execute("CREATE SCHEMA s")
        theirs.execute("CREATE SCHEMA IF NOT EXISTS s")
        expected_notices, notices = noted(theirs), noted(ours)
        faults = []
        for statement in STATEMENTS:
            expected = answer(theirs, statement), expected_notices[:]
            found = answer(ours, statement), notices[:]
            if found != expected:
                faults.append(f"{statement}\n    PostgreSQL  {expected}\n    Tidewire    {found}")
            expected_notices.clear()
            notices.clear()
        theirs.execute("DROP SCHEMA s")
    assert not faults, "\n".join(faults)


def test_extensions_that_are_built_in_are_not_dropped(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for name in ("plpgsql", '"uuid-ossp"'):
            with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="required by the database system"):
                ours.execute(f"DROP EXTENSION IF EXISTS {name}".encode())


def test_a_read_only_transaction_drops_nothing(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("BEGIN READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="cannot execute DROP FUNCTION in a read-only"):
            ours.execute("DROP FUNCTION IF EXISTS f()")


def test_a_block_can_drop(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        notices = noted(ours)
        ours.execute("DO $$ BEGIN DROP TRIGGER IF EXISTS a ON t; END $$")
        assert notices == ['relation "t" does not exist, skipping']
