"""CREATE OR REPLACE VIEW and RENAME TO do and refuse what PostgreSQL does and refuses."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_write import done
from tests.server.slow_engine import PassingEngine

COMMANDS = """
    CREATE TABLE t (a int, b text, n numeric(6,2))
    INSERT INTO t VALUES (1, 'x', 2)
    CREATE VIEW v AS SELECT a, n FROM t
    CREATE TABLE alone (a int)
    CREATE OR REPLACE VIEW alone AS SELECT 1 AS a
    INSERT INTO alone VALUES (1)
    CREATE OR REPLACE VIEW t AS SELECT 1 AS a
    SELECT * FROM t
    CREATE OR REPLACE VIEW v AS SELECT b, n FROM t
    CREATE OR REPLACE VIEW v AS SELECT a::bigint, n FROM t
    CREATE OR REPLACE VIEW v AS SELECT a, n::numeric(7,2) FROM t
    CREATE OR REPLACE VIEW v AS SELECT a FROM t
    CREATE OR REPLACE VIEW v (a, m) AS SELECT a, n FROM t
    CREATE VIEW w AS SELECT a FROM v
    COMMENT ON VIEW v IS 'remains'
    CREATE OR REPLACE VIEW v AS SELECT a, n, b FROM t WHERE a = 1
    SELECT * FROM v
    CREATE OR REPLACE VIEW v AS SELECT 10 AS a, 2::numeric(6,2) AS n, NULL::text AS b
    SELECT * FROM w
    SELECT obj_description('v'::regclass)
    BEGIN
    CREATE OR REPLACE VIEW v AS SELECT 20 AS a, 2::numeric(6,2) AS n, NULL::text AS b
    SELECT * FROM w
    ROLLBACK
    SELECT * FROM w
    DROP VIEW v
    CREATE SEQUENCE s
    CREATE OR REPLACE VIEW s AS SELECT 1 AS a
    CREATE INDEX i ON t (a)
    CREATE TYPE mood AS ENUM ('ok')
    CREATE DOMAIN positive AS int
    CREATE SCHEMA renamed
    CREATE ROLE renamed
    ALTER TABLE t RENAME TO t
    ALTER VIEW v RENAME TO v
    ALTER SEQUENCE s RENAME TO s
    ALTER INDEX i RENAME TO i
    ALTER TYPE mood RENAME TO mood
    ALTER DOMAIN positive RENAME TO positive
    ALTER SCHEMA renamed RENAME TO renamed
    ALTER ROLE renamed RENAME TO renamed
    DROP SCHEMA renamed
    DROP ROLE renamed
"""


def test_definitions_are_refused_as_by_postgresql(postgres: str, passing_server: ServerThread) -> None:
    with own_schema(postgres, "replaced") as theirs, psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for command in filter(None, map(str.strip, COMMANDS.splitlines())):
            assert done(ours, command) == done(theirs, command), command
        ours.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
        for command in (
            "CREATE OR REPLACE VIEW m AS SELECT 1 AS a",
            "CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT 1 AS a",
        ):
            assert done(ours, command)[0] == "42809"


def test_a_view_is_not_replaced_under_what_maintains_it(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t; CREATE VIEW over AS TABLE v")
        for view in ("v", "over"):
            with pytest.raises(
                errors.InvalidObjectDefinition, match="infinite recursion detected in rules for relation"
            ):
                ours.execute(f"CREATE OR REPLACE VIEW v AS SELECT a FROM {view}".encode())
        ours.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM over")
        with pytest.raises(errors.DependentObjectsStillExist) as caught:
            ours.execute("CREATE OR REPLACE VIEW v AS SELECT a + 1 AS a FROM t")
        assert caught.value.diag.message_detail == "materialized view m depends on view v"
        ours.execute("DROP MATERIALIZED VIEW m; CREATE OR REPLACE VIEW v AS SELECT a + 1 AS a FROM t")


def test_a_replaced_view_survives_a_restart(tmp_path: Path) -> None:
    for statements in (
        "CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW over AS TABLE v; CREATE OR REPLACE VIEW v AS SELECT 2 AS a",
        "TABLE over",
    ):
        server = ServerThread(tmp_path, PassingEngine())
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as ours:
                answer = ours.execute(statements.encode())
        finally:
            server.stop()
    assert answer.fetchall() == [(2,)]
