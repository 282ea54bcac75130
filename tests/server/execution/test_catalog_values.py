"""Catalog functions and types in statements over the tables of users, compared with PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.server.execution.test_statements_of_tools import answer

MAKE = """
CREATE TABLE t (id int PRIMARY KEY, x bigint, note text);
COMMENT ON TABLE t IS 'the comment of t';
COMMENT ON COLUMN t.note IS 'the comment of note';
INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, NULL, 't');
CREATE TABLE u (table_id oid_type, name text);
INSERT INTO u VALUES ('t'::regclass::oid, 'T'), ('u'::regclass, 'U');
"""
STATEMENTS = """
SELECT id, pg_relation_size('t') >= 0, pg_size_pretty(pg_total_relation_size('t')) IS NULL AS none FROM t ORDER BY id
SELECT pg_relation_size('t') IS NULL, id FROM t WHERE id = 1
SELECT 't'::regclass, count(*) FROM t
SELECT 't'::regclass, id % 2, count(*) FROM t GROUP BY 't'::regclass, id % 2 ORDER BY 2
SELECT 't'::regclass::text || ':' || id FROM t ORDER BY id
SELECT id FROM t WHERE note = 't'::regclass::text
SELECT name FROM u WHERE table_id = 't'::regclass
SELECT name FROM u WHERE table_id = 'u'::regclass::oid
SELECT name FROM u WHERE table_id IN ('t'::regclass, 'u'::regclass) ORDER BY name
SELECT name FROM u WHERE table_id = to_regclass('u')
SELECT u.name, t.id FROM u JOIN t ON u.table_id = 't'::regclass::oid AND t.id < 3 ORDER BY 2
SELECT id, obj_description('t'::regclass), obj_description('t'::regclass, 'pg_class') FROM t WHERE id < 3 ORDER BY id
SELECT col_description('t'::regclass, 3), col_description('t'::regclass, 1), id FROM t WHERE id = 1
SELECT coalesce(obj_description('u'::regclass), 'none') || '/' || note FROM t ORDER BY id
SELECT format_type(1700, 655366), format_type('int4'::regtype, NULL), id FROM t WHERE id = 2
SELECT id, pg_catalog.format_type(23, -1) FROM t ORDER BY id LIMIT 1
SELECT (SELECT max(id) FROM t), 't'::regclass
SELECT 'integer'::regtype, 'integer'::regtype::oid = 23, count(*) FROM t
SELECT has_table_privilege('t'::regclass, 'select'), id FROM t WHERE id = 1
SELECT CASE WHEN id = 1 THEN 't'::regclass::text ELSE note END FROM t ORDER BY id
WITH big AS (SELECT id, 't'::regclass AS source FROM t WHERE x > 10) SELECT * FROM big
SELECT 'nothing'::regclass, id FROM t
SELECT id FROM t WHERE x = 'nothing'::regclass::oid
SELECT to_regclass('nothing'), id FROM t WHERE id = 1
UPDATE t SET note = 't'::regclass::text WHERE id = 2 RETURNING id, note
UPDATE u SET name = obj_description('t'::regclass) WHERE table_id = 't'::regclass RETURNING name
DELETE FROM u WHERE table_id = 'u'::regclass
INSERT INTO t SELECT 4, 0, obj_description('t'::regclass) FROM u RETURNING note, 'u'::regclass
INSERT INTO t VALUES (5, 5, format_type(23, NULL)) ON CONFLICT (id) DO NOTHING
SELECT * FROM t ORDER BY id
"""


def test_they_are_answered_as_by_postgresql(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "catalog_values") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        for connection, type in ((theirs, "oid"), (ours, "bigint")):
            for statement in MAKE.replace("oid_type", type).split(";"):
                connection.execute(statement.encode())
        faults = []
        for statement in STATEMENTS.split("\n")[1:-1]:
            expected, found = answer(theirs, statement), answer(ours, statement)
            if found != expected:
                faults.append(f"{statement}\n    PostgreSQL  {expected}\n    Tidewire    {found}")
        names = "SELECT 't'::regclass, pg_relation_size('t'), format_type(23, -1) AS f, 't'::regclass::oid FROM t"
        columns = [
            [column.name for column in connection.execute(names).description or ()] for connection in (theirs, ours)
        ]
    assert not faults, "\n".join(faults)
    assert columns[0] == columns[1]


def test_a_value_is_that_of_each_execution(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, x int)")
        connection.execute("INSERT INTO t VALUES (1, 1)")
        query = "SELECT pg_relation_size('t'), count(*) FROM t"
        (before,) = connection.execute(query).fetchall()
        connection.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 1000) n")
        (after,) = connection.execute(query).fetchall()
        assert (before[1], after[1]) == (1, 1001)
        assert before[0] < after[0]


def test_parameters(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, x bigint)")
        connection.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        connection.execute("UPDATE t SET x = %s::regclass::oid WHERE id = %s", ("t", 2))
        query = "SELECT id, %s::regclass FROM t WHERE x = %s::regclass::oid AND id < %s"
        assert connection.execute(query, ("t", "t", 5)).fetchall() == [(2, "t")]
        connection.execute("PREPARE p (text) AS SELECT id FROM t WHERE x = $1::regclass::oid")
        assert connection.execute("EXECUTE p ('t')").fetchall() == [(2,)]
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SELECT 't'::regclass, id FROM t ORDER BY id")
        assert connection.execute("FETCH ALL FROM c").fetchall() == [("t", 1), ("t", 2)]
        connection.execute("COMMIT")


def test_copy_and_explain(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, x bigint)")
        connection.execute("INSERT INTO t VALUES (1, 1)")
        with connection.cursor().copy("COPY (SELECT id, 't'::regclass FROM t) TO STDOUT") as copy:
            assert list(copy.rows()) == [("1", "t")]
        plan = connection.execute("EXPLAIN SELECT id FROM t WHERE x = 't'::regclass::oid").fetchall()
        assert any("Filter" in line for (line,) in plan)


def test_a_view_refuses_them(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="regclass"):
            connection.execute("CREATE VIEW v AS SELECT 't'::regclass, id FROM t")
        error: Any
        with pytest.raises(psycopg.errors.FeatureNotSupported) as error:
            connection.execute("SUBSCRIBE (SELECT 't'::regclass, id FROM t)")
        assert error.value.diag.message_hint


def test_tableoid(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.t (id int)")
        connection.execute("INSERT INTO other.t VALUES (1)")
        connection.execute("CREATE VIEW v AS SELECT * FROM other.t")
        query = (
            "SELECT tableoid::regclass, a.tableoid = (SELECT oid FROM pg_class WHERE relname = 't'), id FROM other.t a"
        )
        assert connection.execute(query).fetchall() == [("other.t", True, 1)]
        deleted = "UPDATE other.t SET id = 2 WHERE tableoid = 'other.t'::regclass RETURNING tableoid::regclass, id"
        assert connection.execute(deleted).fetchall() == [("other.t", 2)]
        for query, hint in (
            ("SELECT b.tableoid FROM other.t a LEFT JOIN other.t b ON a.id = b.id", "in a subquery in FROM"),
            ("SELECT tableoid FROM v", "by a key"),
            ("SELECT ctid FROM other.t", "GENERATED ALWAYS AS IDENTITY numbers the rows"),
            ("SELECT xmin FROM other.t", "by a key"),
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="system column") as refused:
                connection.execute(query.encode())
            assert hint in str(refused.value.diag.message_hint)
