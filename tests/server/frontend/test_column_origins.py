"""The tables and numbers of columns in RowDescription, from which drivers get nullability and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

OBJECTS = """
    CREATE TABLE t (id int PRIMARY KEY, gone text, name varchar(10), n numeric(5,2), at timestamp(3), items int[]);
    CREATE TABLE u (id int, "Big" bigint, name text);
    CREATE VIEW v AS SELECT name, id AS number, n + 1 AS more FROM t;
    CREATE VIEW vv AS SELECT * FROM v;
    CREATE SEQUENCE s;
    ALTER TABLE t ADD COLUMN late text
"""

STATEMENTS = (
    "SELECT * FROM t",
    "TABLE u",
    'SELECT late, (t.id), ((t.name)), "Big" AS renamed, u.* FROM t, u',
    "SELECT id + 0, id::bigint, 'a', NULL, $1::int, upper(name), name || 'a', coalesce(id, 0), items[1] FROM t",
    "SELECT id::int, name::varchar(10), name::text, n::numeric(5,2), items::int[], CAST(id AS integer) FROM t",
    "SELECT * FROM v",
    "SELECT number, more FROM vv AS x",
    "SELECT last_value, is_called FROM s",
    "SELECT a, b, c FROM (SELECT id, name, n * 2 FROM t) AS x (a, b, c)",
    "SELECT * FROM (SELECT * FROM (SELECT name, count(*) FROM t GROUP BY name) AS y) AS x",
    "WITH w AS (SELECT id, late FROM t) SELECT * FROM w",
    "WITH w (a, b) AS (SELECT id, late FROM t), x AS (SELECT b, a FROM w) SELECT * FROM x AS y",
    "WITH RECURSIVE w (a) AS (SELECT id FROM t UNION ALL SELECT a + 1 FROM w WHERE a < 10) SELECT a FROM w",
    "WITH RECURSIVE w AS (SELECT id FROM t) SELECT id FROM w",
    "SELECT * FROM t JOIN u USING (id)",
    "SELECT * FROM t LEFT JOIN u USING (id)",
    "SELECT * FROM t RIGHT JOIN u USING (id)",
    "SELECT * FROM t FULL JOIN u USING (id)",
    "SELECT id, t.id, u.id FROM t LEFT JOIN u USING (id)",
    'SELECT * FROM t NATURAL JOIN (SELECT id, "Big" FROM u) AS x',
    "SELECT * FROM t AS a LEFT JOIN t AS b ON a.id = b.id",
    "SELECT j.id FROM t JOIN u USING (id) AS j",
    "SELECT * FROM (t JOIN u ON true)",
    "SELECT t.id, x.* FROM t, LATERAL (SELECT t.late, u.name, t.id + u.id FROM u) AS x",
    "SELECT t.id, g, x.* FROM t, generate_series(1, 2) AS g, LATERAL (VALUES (t.name), ('a')) AS x",
    "SELECT id, unnest(items), (SELECT u.name FROM u LIMIT 1) FROM t",
    "SELECT name FROM t WHERE id = 1 ORDER BY n DESC LIMIT 1 OFFSET 2",
    "SELECT DISTINCT name, n FROM t ORDER BY n",
    "SELECT DISTINCT ON (name) name, id FROM t ORDER BY name, id",
    "SELECT name, n, count(*), max(id), count(*) OVER () FROM t GROUP BY name, n HAVING count(*) > 0",
    "SELECT id, name, n FROM t GROUP BY id",
    "SELECT name, n, sum(id) FROM t GROUP BY ROLLUP (name, n)",
    "SELECT name, n, grouping(name) FROM t GROUP BY GROUPING SETS ((name), (n), ())",
    "SELECT name, lag(id) OVER (ORDER BY id), id FROM t",
    "SELECT id FROM t UNION ALL SELECT id FROM u",
    "SELECT * FROM (SELECT id FROM t EXCEPT SELECT id FROM u) AS x",
    "(SELECT id, name FROM t) ORDER BY 1",
    "SELECT id, random(), now() FROM t",
    "SELECT id FROM t WHERE id = $1 FOR UPDATE",
    "VALUES (1, 'a')",
    "INSERT INTO t (id) VALUES (1) RETURNING *",
    "INSERT INTO t AS x (id, name) SELECT id, name FROM u RETURNING x.id, name, id + 1",
    "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id, late",
    "INSERT INTO v (number) VALUES (1) RETURNING *",
    "UPDATE t SET name = 'a' RETURNING *",
    "UPDATE t SET name = u.name FROM u WHERE u.id = t.id RETURNING t.name, u.*",
    "UPDATE vv SET name = 'a' WHERE number = 1 RETURNING number, name, more",
    "DELETE FROM t WHERE id = 1 RETURNING late, n, n + 1",
    "DELETE FROM t USING u WHERE u.id = t.id RETURNING *",
    "DELETE FROM v RETURNING *",
    "WITH w AS (INSERT INTO u VALUES (1) RETURNING id AS a, name, 1) SELECT * FROM w",
    "WITH w AS (DELETE FROM u RETURNING id), x AS (SELECT id FROM w) INSERT INTO t (id) SELECT id FROM x RETURNING id",
    "SELECT attname, attnum AS number, attlen + 1 FROM pg_attribute",
    "SELECT c.relname, n.* FROM pg_catalog.pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace",
    "SELECT x.typname FROM (SELECT typname FROM pg_type ORDER BY 1) AS x",
    "SELECT relname FROM pg_class UNION SELECT attname FROM pg_attribute",
    "SELECT tablename FROM pg_tables",
    "SELECT pid, pg_cancel_backend(pid), (usename) FROM pg_stat_activity",
)


Origin = tuple[str, int, str]
"""The name of a relation, and the number and name of its column."""


def origins(connection: psycopg.Connection[Any], statement: str) -> list[Origin | None]:
    """For each column of a statement's result: its origin."""
    pg = connection.pgconn
    pg.send_prepare(b"", statement.encode())
    (prepared,) = connection.wait(execute(pg))
    assert prepared.status == ExecStatus.COMMAND_OK, prepared.error_message
    pg.send_describe_prepared(b"")  # `describe_prepared` would stop the server, whose threads are in this process
    (described,) = connection.wait(execute(pg))
    assert described.nfields, described.error_message
    return named(connection, described)


def named(connection: psycopg.Connection[Any], result: PGresult) -> list[Origin | None]:
    found: list[Origin | None] = []
    for table, number in [(result.ftable(n), result.ftablecol(n)) for n in range(result.nfields)]:
        if table == number == 0:
            found.append(None)
            continue
        rows = connection.execute(
            "SELECT c.relname, a.attnum, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid "
            f"WHERE c.oid = {table} AND a.attnum = {number}".encode()
        ).fetchall()
        assert len(rows) == 1, (table, number)
        found.append(rows[0])
    return found


@pytest.fixture
def ours(passing_server: ServerThread) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for definition in OBJECTS.split(";\n"):
            connection.execute(definition.encode())
        yield connection


def test_origins_are_those_of_postgresql(ours: psycopg.Connection[Any], postgres: str) -> None:
    with own_schema(postgres, "origins") as theirs:
        theirs.execute(OBJECTS.encode())
        found = {statement: origins(ours, statement) for statement in STATEMENTS}
        assert found == {statement: origins(theirs, statement) for statement in STATEMENTS}


def test_numbers_are_those_of_pg_attribute_after_a_column_was_dropped(ours: psycopg.Connection[Any]) -> None:
    assert origins(ours, "SELECT late FROM t") == [("t", 7, "late")]
    ours.execute("ALTER TABLE t DROP COLUMN gone")
    (late,) = origins(ours, "SELECT late FROM t")
    assert late is not None
    assert (late[0], late[2]) == ("t", "late")


@pytest.mark.parametrize(
    "statements",
    [
        ("SELECT name, id FROM t WHERE id = 1",),
        ("SELECT name, id FROM t WHERE id = 2", "SELECT name, id FROM t WHERE id = 1"),  # they share a plan
        ("INSERT INTO t (id) VALUES (1) RETURNING name, id",),
        ("BEGIN", "DECLARE c CURSOR FOR SELECT name, id FROM t", "FETCH ALL FROM c"),
        ("WITH w AS (INSERT INTO t (id) VALUES (1) RETURNING id, name) SELECT name, id FROM w",),
        ("PREPARE p AS SELECT name, id FROM t WHERE id = $1", "EXECUTE p (1)"),
    ],
)
def test_results_have_origins(ours: psycopg.Connection[Any], statements: tuple[str, ...]) -> None:
    for statement in statements:
        result = ours.execute(statement.encode()).pgresult
    assert result is not None
    assert named(ours, result) == [("t", 3, "name"), ("t", 1, "id")]
