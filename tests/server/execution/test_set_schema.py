"""ALTER ... SET SCHEMA, compared with PostgreSQL."""

from __future__ import annotations

import psycopg

from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerThread
from tests.server.execution.test_sequences import differences

COMMANDS = (
    "CREATE SCHEMA other",
    "CREATE TABLE t (k int PRIMARY KEY, n serial, i int GENERATED ALWAYS AS IDENTITY, v text UNIQUE)",
    "CREATE INDEX by_i ON t (i)",
    "CREATE VIEW w AS SELECT k FROM t",
    "CREATE SEQUENCE s",
    "CREATE TABLE r (k int REFERENCES t)",
    "INSERT INTO t (k) VALUES (1)",
    "ALTER TABLE t SET SCHEMA nowhere",
    "ALTER TABLE nothing SET SCHEMA other",
    "ALTER TABLE IF EXISTS nothing SET SCHEMA other",
    "CREATE TABLE other.by_i (k int)",
    "ALTER TABLE t SET SCHEMA other",
    "DROP TABLE other.by_i",
    "ALTER TABLE t SET SCHEMA other",
    "ALTER TABLE other.t SET SCHEMA other",
    "INSERT INTO other.t (k) VALUES (2) RETURNING *",
    "INSERT INTO other.t (k) VALUES (2)",
    "SELECT * FROM w",
    "SELECT * FROM t",
    "ALTER VIEW w SET SCHEMA other",
    "SELECT * FROM other.w",
    "ALTER SEQUENCE other.t_n_seq SET SCHEMA public",
    "ALTER SEQUENCE s SET SCHEMA other",
    "SELECT nextval('other.s')",
    "ALTER TABLE other.s SET SCHEMA public",
    "SELECT nextval('s')",
    "ALTER TABLE r SET SCHEMA pg_temp",
    "SELECT relname, nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE nspname IN ('public', 'other')",
    "SELECT pg_get_constraintdef(oid) LIKE 'FOREIGN KEY (k) REFERENCES other.t(k)%' FROM pg_constraint "
    "WHERE contype = 'f'",
)


def test_objects_move_as_in_postgresql(passing_server: ServerThread) -> None:
    server = PostgresServer()
    try:
        with (
            psycopg.connect(server.dsn, autocommit=True) as theirs,
            psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
        ):
            found = differences(ours, theirs, COMMANDS)
            assert not found, found
    finally:
        server.stop()
