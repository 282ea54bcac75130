"""docs/clients.md lists the system catalogs that have rows, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.fix_server import ServerThread

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
OBJECTS = """
    CREATE ROLE r LOGIN; CREATE ROLE q; GRANT r TO q WITH ADMIN OPTION;
    ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO r;
    CREATE TABLE p (a int PRIMARY KEY, b text DEFAULT 'x', CONSTRAINT positive CHECK (a > 0));
    CREATE TABLE f (id serial, a int REFERENCES p);
    GRANT SELECT (b) ON p TO r;
    CREATE TYPE e AS ENUM ('a', 'b'); CREATE DOMAIN d AS int CHECK (value > 0);
    CREATE TABLE g (d d, e e);
    CREATE VIEW v AS SELECT a FROM p; CREATE MATERIALIZED VIEW m AS SELECT a FROM p; CREATE INDEX i ON p (b);
    COMMENT ON TABLE p IS 'a table'; COMMENT ON DATABASE materialize IS 'a database';
"""
RELATIONS = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
"""


def test_catalogs_with_rows(passing_server: ServerThread) -> None:
    listed = re.search(r"These\s+have\s+rows,(.*?)The\s+others\s+are\s+empty", PAGE.read_text(), re.S)
    assert listed is not None
    documented = re.findall(r"`(\w+)`", listed[1])
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for definition in filter(str.strip, OBJECTS.split(";")):
            connection.execute(definition.encode())
        for statement in (
            "SELECT pg_advisory_lock(1)",
            "PREPARE s AS SELECT 1",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        ):
            connection.execute(statement)
        with psycopg.connect(passing_server.dsn()) as copying, copying.cursor().copy("COPY p FROM STDIN"):
            found = [
                name
                for schema, name in connection.execute(RELATIONS.encode()).fetchall()
                if connection.execute(f'SELECT EXISTS (SELECT FROM {schema}."{name}")'.encode()).fetchone() == (True,)
            ]
    assert set(documented) ^ set(found) == set()
