"""WITH whose items write, compared with PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_sequences import differences

COMMANDS = (
    "CREATE TABLE t (k int PRIMARY KEY, v text)",
    "CREATE TABLE log (k int, old text, new text, n int DEFAULT 7)",
    "CREATE TABLE bag (a int)",
    # one part
    "WITH i AS (INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING *) SELECT * FROM i",
    "WITH i AS (INSERT INTO t VALUES (3, 'c') RETURNING k) SELECT count(*) FROM t",
    "WITH u AS (UPDATE t SET v = v || '!' WHERE k < 3 RETURNING k, v) SELECT u.k, t.v, u.v FROM u JOIN t USING (k)",
    "WITH d AS (DELETE FROM t WHERE k = 3 RETURNING *) INSERT INTO log (k, old) SELECT k, v FROM d",
    "SELECT * FROM log",
    "WITH d (x, y) AS (DELETE FROM t WHERE k = 2 RETURNING *) INSERT INTO log SELECT x, y, 'moved' FROM d RETURNING *",
    "SELECT * FROM t",
    # the parts see the snapshot of the statement, and none of each other's changes
    "WITH i AS (INSERT INTO t VALUES (5, 'e') RETURNING k), j AS (INSERT INTO t VALUES (6, 'f') RETURNING k) "
    "SELECT (SELECT count(*) FROM t) AS before, i.k, j.k FROM i, j",
    "WITH i AS (INSERT INTO bag SELECT g FROM generate_series(1, 5) AS g (g)), "
    "j AS (INSERT INTO bag SELECT a + 100 FROM bag RETURNING a) SELECT count(*) FROM j",
    "WITH j AS (INSERT INTO bag SELECT a + 100 FROM bag RETURNING a), d AS (DELETE FROM bag WHERE a < 3) "
    "SELECT sum(a) FROM j",
    "SELECT a FROM bag",
    # a part is executed completely and once
    "WITH i AS (INSERT INTO log (k) SELECT a FROM bag RETURNING k) SELECT k FROM i ORDER BY k LIMIT 1",
    "WITH i AS (INSERT INTO log (k) VALUES (77)) SELECT 1 AS one",
    "WITH i AS (INSERT INTO log (k) VALUES (78) RETURNING k) SELECT x.k, y.k FROM i AS x, i AS y",
    "WITH i AS (INSERT INTO log (k) VALUES (79) RETURNING k) SELECT 1 AS one WHERE false",
    "SELECT k, count(*) FROM log GROUP BY k",
    # queries between the parts
    "WITH wanted AS (SELECT k FROM t WHERE v = 'e'), d AS (DELETE FROM t WHERE k IN (SELECT k FROM wanted) "
    "RETURNING *), doubled AS (SELECT k * 2 AS k2, v FROM d) INSERT INTO t SELECT k2, v FROM doubled RETURNING k",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3), "
    "x AS (INSERT INTO bag SELECT i FROM n RETURNING a) SELECT sum(a) FROM x",
    # an update with RETURNING, or an insert
    "WITH up AS (UPDATE t SET v = 'new' WHERE k = 20 RETURNING *) INSERT INTO t SELECT 20, 'first' "
    "WHERE NOT EXISTS (SELECT FROM up)",
    "WITH up AS (UPDATE t SET v = 'new' WHERE k = 20 RETURNING *) INSERT INTO t SELECT 20, 'first' "
    "WHERE NOT EXISTS (SELECT FROM up)",
    "WITH ins AS (INSERT INTO t VALUES (20, 'x'), (21, 'y') ON CONFLICT DO NOTHING RETURNING k) "
    "SELECT k, 'new' AS how FROM ins UNION ALL SELECT k, 'old' FROM t WHERE k IN (20, 21)",
    "WITH ins AS (INSERT INTO t VALUES (21, 'z'), (22, 'w') ON CONFLICT (k) DO UPDATE SET v = excluded.v || t.v "
    "RETURNING k, v) UPDATE log SET new = ins.v FROM ins WHERE log.k = 77 AND ins.k = 21 RETURNING log.k, new",
    "SELECT * FROM t",
    # MERGE
    "WITH s AS (SELECT 20 AS k, 'm' AS v UNION ALL SELECT 30, 'n') MERGE INTO t USING s ON t.k = s.k "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)",
    "WITH d AS (DELETE FROM t WHERE k = 30 RETURNING *) DELETE FROM log USING d WHERE log.k > d.k",
    "SELECT k, v FROM t",
    # errors
    "WITH i AS (INSERT INTO t VALUES (50, 'x')) SELECT * FROM i",
    "WITH i AS (INSERT INTO t VALUES (20, 'x') RETURNING k) SELECT * FROM i",
    "WITH i AS (INSERT INTO t VALUES (51, 'x') RETURNING k) INSERT INTO t SELECT k, 'y' FROM i",
    "WITH i AS (INSERT INTO t VALUES (52, 'x') RETURNING k), i AS (SELECT 1) SELECT 1",
    "WITH i AS (INSERT INTO t VALUES (52, 'x') RETURNING k) SELECT 1 / (k - 52) FROM i",
    "WITH i AS (INSERT INTO t VALUES (52, 'x') RETURNING k) SELECT nothing FROM i",
    "SELECT * FROM (WITH i AS (INSERT INTO t VALUES (53, 'x') RETURNING k) SELECT * FROM i) AS s",
    "SELECT k FROM t WHERE k > 50",
    # blocks
    "BEGIN",
    "INSERT INTO t VALUES (60, 'block')",
    "WITH u AS (UPDATE t SET v = v || '2' WHERE k = 60 RETURNING *), i AS (INSERT INTO t VALUES (61, 'i') RETURNING *) "
    "SELECT (SELECT count(*) FROM t WHERE k >= 60) AS before, u.v, i.v FROM u, i",
    "SELECT * FROM t WHERE k >= 60",
    "SAVEPOINT s",
    "WITH d AS (DELETE FROM t WHERE k = 60 RETURNING *) SELECT * FROM d",
    "ROLLBACK TO s",
    "SELECT * FROM t WHERE k >= 60",
    "COMMIT",
    "SELECT * FROM t WHERE k >= 60",
)


def test_items_that_write_are_those_of_postgresql(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "with_writes") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        found = differences(ours, theirs, [*COMMANDS])
        assert not found, found


def test_parameters_and_descriptions(postgres: str, dsn: str) -> None:
    query = (
        "WITH i AS (INSERT INTO p VALUES (%s, %s) RETURNING k), u AS (UPDATE p SET v = %s WHERE k = %s RETURNING v) "
        "SELECT i.k, (SELECT v FROM u), %s::int8 FROM i"
    )
    prepared = "PREPARE q AS WITH d AS (DELETE FROM p WHERE k = $2 RETURNING v) SELECT v, $1::int AS n FROM d"
    answers: list[Any] = []
    with own_schema(postgres, "with_parameters") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        for connection in (ours, theirs):
            connection.execute("CREATE TABLE p (k int, v text); INSERT INTO p VALUES (1, 'one')")
            for _ in range(2):
                cursor = connection.execute(query, (2, "two", "changed", 1, 5), prepare=True)
                assert cursor.description is not None
                answers.append(([c.type_code for c in cursor.description], cursor.fetchall()))
            connection.execute(prepared)
            answers.append(connection.execute("EXECUTE q (8, 1)").fetchall())
            with connection.cursor().copy(
                "COPY (WITH d AS (DELETE FROM p RETURNING k) SELECT count(*) FROM d) TO STDOUT"
            ) as copy:
                answers.append(b"".join(map(bytes, copy)))
            answers.append(connection.execute("SELECT * FROM p").fetchall())
    assert answers[: len(answers) // 2] == answers[len(answers) // 2 :]


def test_a_volatile_query_is_executed_once(dsn: str) -> None:
    query = "WITH r AS (SELECT random() AS x, %s::int AS k) SELECT a.x = b.x, b.k FROM r a, r b"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for k in range(3):
            assert connection.execute(query, (k,), prepare=True).fetchall() == [(True, k)]
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            assert connection.execute(query, (7,)).fetchall() == [(True, 7)]
        nested = "SELECT * FROM (WITH r AS (SELECT random() AS x) SELECT a.x = b.x FROM r a, r b) s"
        for refused in (nested, f"WITH r AS ({nested}) SELECT * FROM r a, r b"):
            with pytest.raises(
                errors.FeatureNotSupported, match=r"that calls random\(\) and is referenced more than once"
            ):
                connection.execute(refused.encode())


def test_catalogs_are_not_read_by_parts(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        for item in ("INSERT INTO t VALUES (1) RETURNING k", "SELECT nextval('s') AS k"):
            connection.execute("CREATE SEQUENCE IF NOT EXISTS s")
            with pytest.raises(errors.FeatureNotSupported, match="system catalogs"):
                connection.execute(f"WITH i AS ({item}) INSERT INTO t SELECT count(*) FROM pg_class, i, i j".encode())
        assert connection.execute("SELECT * FROM t").fetchall() == []


def test_a_row_is_not_changed_twice(dsn: str) -> None:
    """PostgreSQL makes one of the changes, and does not say which one."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
        with pytest.raises(errors.CardinalityViolation, match='a row of table "t" cannot be changed twice'):
            connection.execute("WITH u AS (UPDATE t SET v = 5 WHERE k = 1) DELETE FROM t WHERE k = 1")
        connection.execute("WITH u AS (UPDATE t SET v = 5 WHERE k = 1) DELETE FROM t WHERE k = 2")
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, 5)]


def test_merge_returns_what_it_has_done(dsn: str) -> None:
    """PostgreSQL 17 has RETURNING for MERGE; the tests' PostgreSQL is older."""
    merge = (
        "MERGE INTO t USING (VALUES (1, 10), (2, 20), (3, 30)) AS s (k, v) ON t.k = s.k "
        "WHEN MATCHED AND s.k = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v + t.v "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v) WHEN NOT MATCHED BY SOURCE THEN DELETE "
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v int, w int GENERATED ALWAYS AS (v * 2) STORED)")
        connection.execute("CREATE TABLE log (what text, k int)")
        connection.execute("INSERT INTO t VALUES (1, 1), (2, 2), (9, 9)")
        cursor = connection.execute(
            merge.encode() + b"RETURNING merge_action(), t.*, s.v AS given, lower(merge_action())"
        )
        assert cursor.description is not None
        assert [column.name for column in cursor.description] == ["merge_action", "k", "v", "w", "given", "lower"]
        assert cursor.statusmessage == "MERGE 4"
        assert sorted(cursor.fetchall()) == [
            ("DELETE", 1, 1, 2, 10, "delete"),
            ("DELETE", 9, 9, 18, None, "delete"),
            ("INSERT", 3, 30, 60, 30, "insert"),
            ("UPDATE", 2, 22, 44, 20, "update"),
        ]
        cursor = connection.execute(
            b"WITH m AS (" + merge.encode() + b"RETURNING merge_action() AS what, t.k) "
            b"INSERT INTO log SELECT what, k FROM m RETURNING *"
        )
        assert sorted(cursor.fetchall()) == [("INSERT", 1), ("UPDATE", 2), ("UPDATE", 3)]
        star = connection.execute(
            "MERGE INTO t USING (SELECT 1 AS x) AS s ON t.k = s.x WHEN MATCHED THEN DELETE RETURNING *"
        )
        assert star.fetchall() == [(1, 1, 10, 20)]


def test_concurrent_statements_are_serializable(server: ServerThread, dsn: str) -> None:
    """Each statement moves one row; in the end each row was moved once."""
    move = (
        "WITH moved AS (DELETE FROM source WHERE k = (SELECT min(k) FROM source) RETURNING k) "
        "INSERT INTO target SELECT k FROM moved RETURNING k"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE source (k int); CREATE TABLE target (k int)")
        connection.execute("INSERT INTO source VALUES (1), (2), (3), (4), (5), (6)")
    start = threading.Barrier(2)

    def run(_: int) -> list[int]:
        moved = []
        with psycopg.connect(dsn, autocommit=True) as connection:
            start.wait()
            for _ in range(3):
                moved += [row[0] for row in connection.execute(move)]
        return moved

    with ThreadPoolExecutor(2) as pool:
        found = [k for moved in pool.map(run, range(2)) for k in moved]
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert sorted(found) == [1, 2, 3, 4, 5, 6]
        assert sorted(row[0] for row in connection.execute("SELECT k FROM target")) == sorted(found)
        assert connection.execute("SELECT count(*) FROM source").fetchone() == (0,)
