"""UPDATE and DELETE with FROM, USING and row assignments change tables as in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.sql.statements import table_definitions

TABLES = ("people", "depts", "nums")
# They run in this order on the same tables. No row matches twice where the result depends on the match that is used.
STATEMENTS = (
    "UPDATE people SET salary = salary + d.id FROM depts d WHERE people.dept = d.id",
    "UPDATE people p SET (name, salary) = (upper(p.name), 1.5) WHERE id < 3 RETURNING *",
    "UPDATE people p SET (name, salary) = (SELECT d.name, d.id FROM depts d WHERE d.id = p.dept) WHERE p.id = 4",
    "UPDATE people p SET (name, active) = ROW('x', DEFAULT) WHERE p.id = 2 RETURNING id, name, active",
    "UPDATE people SET name = d.city FROM depts d JOIN nums n ON n.id = d.id WHERE people.dept = d.id AND n.i4 > 0"
    " RETURNING people.id, people.name, d.city",
    "UPDATE people p SET boss = q.id FROM people q WHERE q.id = p.id + 1 RETURNING p.id, q.name",
    "UPDATE depts SET name = 'twice' FROM people WHERE people.dept = depts.id RETURNING depts.id",
    "UPDATE depts SET name = (SELECT max(p.name) FROM people p WHERE p.dept = depts.id)",
    "UPDATE people SET (name, id) = (SELECT 1) WHERE id = 1",
    "UPDATE people SET (name, salary) = (1, 2, 3)",
    "UPDATE people p SET name = 'x' FROM depts p",
    "UPDATE people SET name = nope.id FROM depts d",
    "UPDATE people SET (name, salary) = (SELECT name, id FROM depts)",
    "UPDATE people SET id = 1, (id, name) = (2, 'x')",
    "UPDATE people SET id = NULL WHERE id = 1",
    "DELETE FROM people USING depts d WHERE people.dept = d.id AND d.city IS NULL",
    "DELETE FROM people p USING depts d, nums n WHERE p.dept = d.id AND n.id = d.id AND p.id > 6 RETURNING p.id",
    "DELETE FROM depts USING people WHERE people.dept = depts.id RETURNING depts.*",
    "DELETE FROM people p USING people q WHERE p.id = q.boss",
    "WITH x AS (SELECT id, name FROM depts WHERE id < 3), y (i) AS (SELECT id + 100 FROM x)"
    " INSERT INTO people (id, name) SELECT i, x.name FROM x, y WHERE x.id + 100 = y.i RETURNING id, name",
    "WITH x AS (SELECT max(id) AS id FROM people) INSERT INTO people (id) VALUES ((SELECT id + 1 FROM x))"
    " RETURNING id, (SELECT count(*) FROM x)",
    "WITH people AS (SELECT 300 AS id) INSERT INTO people (id) SELECT id FROM people",
    "WITH x AS (SELECT 1) INSERT INTO x SELECT * FROM x",
    "WITH RECURSIVE x (n) AS (VALUES (400) UNION ALL SELECT n + 1 FROM x WHERE n < 403)"
    " INSERT INTO people (id) WITH y AS (SELECT n FROM x WHERE n > 400) TABLE y",
    "WITH x AS (SELECT id, city FROM depts) UPDATE people p SET name = x.city FROM x WHERE p.dept = x.id AND p.id > 9",
    "WITH x AS (SELECT 301 AS id, 'new' AS name) UPDATE people SET name = x.name FROM x WHERE people.id = x.id - 1"
    " RETURNING people.id, x.*",
    "WITH x AS (SELECT avg(id) AS id FROM people) UPDATE people SET (name, salary) = (SELECT 'avg', 1.25 FROM x)"
    " WHERE id > (SELECT id FROM x) RETURNING id, (SELECT 7 FROM x)",
    "WITH x AS (SELECT 401 AS id) DELETE FROM people USING x WHERE people.id = x.id RETURNING people.id, x.id",
    "WITH x AS MATERIALIZED (SELECT 402 AS id) DELETE FROM people WHERE id IN (SELECT id FROM x)",
    "WITH x AS (SELECT 1 AS a), x AS (SELECT 2 AS a) DELETE FROM people",
    "WITH x AS (SELECT missing FROM people) DELETE FROM people",
    "WITH x AS (SELECT 1 AS a) DELETE FROM people WHERE id = x.a",
    "WITH x AS (SELECT 1 AS a) TRUNCATE people",
    "WITH x AS (SELECT 1 AS a) UPDATE people",
    "WITH x AS (SELECT 1 / 0 AS a) DELETE FROM people",
    "PREPARE p AS WITH x AS (SELECT $1::int AS id) DELETE FROM people USING x WHERE people.id = x.id",
    "EXECUTE p (403)",
    "DECLARE c CURSOR FOR WITH x AS (SELECT 1) DELETE FROM people",
    "DELETE FROM people",
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with own_schema(postgres, "writes") as connection:
        yield connection


def done(connection: psycopg.Connection[Any], sql: str) -> tuple[str | None, Any]:
    """Returns the command tag and the rows, or the SQLSTATE of the error."""
    try:
        cursor = connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate, None
    rows = sorted(map(repr, cursor.fetchall())) if cursor.description else None
    return cursor.statusmessage, rows


def test_writes_change_tables_as_in_postgresql(theirs: psycopg.Connection[Any], dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        for definition in table_definitions():
            if any(f" {name} " in definition.split("(")[0] + " " for name in TABLES):
                assert done(theirs, definition) == done(ours, definition)
        for sql in STATEMENTS:
            assert done(ours, sql) == done(theirs, sql), sql
            for name in TABLES:
                contents = f"SELECT * FROM {name}"
                assert done(ours, contents) == done(theirs, contents), sql
