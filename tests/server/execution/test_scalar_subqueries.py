"""Scalar subqueries of small inputs are joined, so that Spark prepares the statement; those of large ones are not."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from server.dataflow.runtime import spark_rows

QUERIES = (
    "SELECT * FROM t WHERE k = (SELECT max(k) FROM t)",
    "SELECT * FROM t WHERE k > (SELECT avg(k) FROM t) ORDER BY k LIMIT 3",
    "SELECT (SELECT count(*) FROM t), (SELECT v FROM t WHERE k = 3), (SELECT 5)",
    "SELECT k, (SELECT v FROM t WHERE false) AS none FROM t WHERE k < 3",
    "SELECT k, (SELECT v FROM t WHERE k = 7 LIMIT 1) AS v FROM t WHERE v <> (SELECT min(v) FROM u)",
    "SELECT k + (SELECT min(k) FROM u) AS n, count(*) FROM t GROUP BY 1 HAVING count(*) >= (SELECT 1)",
    "SELECT sum(k) FILTER (WHERE k > (SELECT 2)), max(v || (SELECT v FROM u LIMIT 1)) FROM t",
    "SELECT t.k FROM t JOIN u ON t.k = u.k AND t.v = (SELECT max(v) FROM u)",
    "SELECT t.k, u.v FROM t LEFT JOIN u ON t.k = u.k AND u.v = (SELECT max(v) FROM u)",
    "SELECT k FROM t WHERE k IN (SELECT k FROM u WHERE k = (SELECT max(k) FROM u))",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.k < (SELECT max(k) FROM u))",
    "SELECT k, (SELECT count(*) FROM u WHERE u.k < t.k) - (SELECT count(*) FROM u) FROM t",
    "SELECT k FROM t ORDER BY k % (SELECT max(k) FROM u), k LIMIT 4",
    "SELECT k, (SELECT max(k) FROM u) FROM t ORDER BY k DESC LIMIT 2",
    "SELECT (SELECT max(k) FROM u) FROM t ORDER BY v, k LIMIT 2",
    "SELECT k, rank() OVER (ORDER BY k % (SELECT 3)) FROM t",
    "SELECT (SELECT max(k) FROM t) UNION ALL SELECT (SELECT min(k) FROM u)",
    "SELECT CASE WHEN (SELECT count(*) FROM u WHERE k > 100) > 0 THEN 'many' ELSE 'few' END",
    "SELECT (SELECT 1 / count(*) FROM u WHERE false) FROM t WHERE k > 1",
    "SELECT k, (SELECT upper(max(v)) || format('%s', count(*)) FROM u) FROM t",
    "SELECT t.k, u.v FROM t LEFT JOIN u ON t.k = u.k AND u.k > (SELECT count(*) - 1 FROM u)",
    "WITH x AS (SELECT avg(k) AS n FROM t) SELECT (SELECT n FROM x), (SELECT -n FROM x) FROM t WHERE k > (TABLE x)",
    "SELECT (SELECT k FROM t)",
    "SELECT k FROM t WHERE v = (SELECT v FROM u)",
    "SELECT (SELECT 1 / (k - k) FROM u LIMIT 1) FROM t WHERE k = 1",
    "UPDATE t SET v = v || (SELECT max(v) FROM u) WHERE k = (SELECT min(k) FROM u) RETURNING k, v",
    "DELETE FROM t WHERE k = (SELECT k FROM t WHERE v LIKE 'v%' ORDER BY k FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING k",
    "INSERT INTO t SELECT (SELECT max(k) FROM t) + 1, (SELECT v FROM u WHERE k = 2) RETURNING k, v",
)


def results(dsn: str, repeat: int) -> list[Any]:
    found: list[Any] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t, u")
        connection.execute("CREATE TABLE t (k int, v text)")
        connection.execute("CREATE TABLE u (k int, v text)")
        connection.execute("INSERT INTO t SELECT i, 'v' || i % 4 FROM generate_series(1, 12) AS g (i)")
        connection.execute("INSERT INTO u VALUES (2, 'v1'), (3, 'v3'), (5, NULL)")
        for query in QUERIES:
            rows: list[Any] = []
            for _ in range(repeat):
                with connection.transaction(force_rollback=True):
                    try:
                        rows = connection.execute(query.encode(), prepare=False).fetchall()
                    except psycopg.Error as error:
                        rows = [error.sqlstate]
            found.append(rows if re.search(r"ORDER BY[^()]*$", query) else sorted(rows, key=repr))
    return found


@pytest.mark.sql
@pytest.mark.long
def test_results_are_those_of_postgresql(postgres: str, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = results(postgres, 1)
    assert dict(zip(QUERIES, results(dsn, 3), strict=True)) == dict(zip(QUERIES, expected, strict=True))
    monkeypatch.setattr(spark_rows, "PREPARED_BYTES_MAX", -1)
    assert dict(zip(QUERIES, results(dsn, 1), strict=True)) == dict(zip(QUERIES, expected, strict=True))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CASE WHEN k > 0 THEN k ELSE (SELECT 1 / count(*) FROM g WHERE false) END FROM g",
        "SELECT coalesce(k, (SELECT 1 / count(*) FROM g WHERE false)) FROM g",
        "SELECT coalesce(k, (SELECT k FROM (VALUES (1), (2)) AS v (k))) FROM g",
        "SELECT 1 UNION SELECT (SELECT 1 / count(*) FROM g WHERE false) FROM g WHERE k > 1",
    ],
)
def test_a_value_that_is_not_needed_does_not_fail(dsn: str, query: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS g AS SELECT 1 AS k")
        for _ in range(3):
            assert connection.execute(query.encode()).fetchall() == [(1,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM p WHERE k = (SELECT max(k) FROM p)",
        "SELECT (SELECT count(*) FROM p), (SELECT k FROM p ORDER BY k LIMIT 1)",
        "UPDATE p SET k = k WHERE k = (SELECT k FROM p ORDER BY k LIMIT 1) RETURNING k",
    ],
)
def test_a_repeated_statement_is_not_planned_again(dsn: str, query: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS p (k int)")
        connection.execute("INSERT INTO p VALUES (1), (2)")
        for _ in range(3):
            connection.execute(query.encode())
        shown = str(connection.execute(f"EXPLAIN ANALYZE {query}".encode()).fetchall())
    assert re.findall(r"planning ([0-9.]+) ms", shown) == ["0.000"], shown
