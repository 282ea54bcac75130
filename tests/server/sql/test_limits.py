"""Deeply nested views, wide tables and long lists work up to PostgreSQL's limits and raise its errors beyond them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.server.coordinator.test_dataflows import changes, connected, follow, rows

DEEP = 200
CHAIN = 20
COLUMNS_MAX, TARGETS_MAX = 1_600, 1_664


@pytest.fixture(autouse=True)
def depth() -> Iterator[None]:
    """Sets the recursion limit to that of `tidewire serve`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.sql
def test_deeply_nested_views(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (1, 0), (2, NULL), (3, 550)")
        below = "t"
        for number in range(DEEP):
            body = "k, v + 1 AS v FROM {}" if number % 2 else "* FROM {} WHERE v < 600"
            connection.execute(f"CREATE VIEW v{number} AS SELECT {body.format(below)}".encode())
            below = f"v{number}"
        expected = [(1, DEEP // 2)]
        assert rows(connection, f"SELECT * FROM {below}") == expected
        connection.execute(f"CREATE MATERIALIZED VIEW m AS SELECT * FROM {below}".encode())
        assert rows(connection, "SELECT * FROM m") == expected
        follow(other, below)
        connection.execute("INSERT INTO t VALUES (4, 1)")
        assert changes(other, 1)[0][1:] == (1, 4, 1 + DEEP // 2)


def test_a_chain_of_materialized_views(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as first, psycopg.connect(dsn) as last:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (1, 1), (2, 5)")
        below = "t"
        for number in range(CHAIN):
            body = f"SELECT k, max(v) + 1 AS v FROM {below} GROUP BY k" if number % 5 == 4 else f"SELECT * FROM {below}"
            connection.execute(f"CREATE MATERIALIZED VIEW m{number} AS {body}".encode())
            below = f"m{number}"
        assert rows(connection, f"SELECT * FROM {below}") == [(1, 5), (2, 9)]
        follow(first, "t")
        follow(last, below)
        connection.execute("INSERT INTO t VALUES (1, 3)")
        connection.execute("DELETE FROM t WHERE k = 2")
        begun = changes(first, 2)
        ended = changes(last, 3)
        assert sorted(ended[:2]) == [(begun[0][0], -1, 1, 5), (begun[0][0], 1, 1, 7)]
        assert ended[2] == (begun[1][0], -1, 2, 9)


@pytest.mark.sql
@pytest.mark.long
def test_the_maximum_number_of_columns(dsn: str) -> None:
    names = [f"c{number}" for number in range(COLUMNS_MAX)]
    columns = ", ".join(f"{name} int" for name in names)
    with connected(dsn) as connection, psycopg.connect(dsn) as other, psycopg.connect(dsn) as third:
        connection.execute(f"CREATE TABLE t ({columns})".encode())
        row = tuple(range(COLUMNS_MAX))
        connection.execute(f"INSERT INTO t VALUES ({', '.join(map(str, row))})".encode())
        assert rows(connection, "SELECT * FROM t") == [row]
        more = ", ".join(f"{name} + 1 AS {name}" for name in names)
        connection.execute(f"CREATE MATERIALIZED VIEW m AS SELECT {more} FROM t".encode())
        assert rows(connection, "SELECT * FROM m") == [tuple(value + 1 for value in row)]
        joined = "SELECT a.* FROM t a JOIN m b ON a.c1 = b.c0"
        assert rows(connection, joined) == [row]
        follow(other, f"({joined})")
        follow(third, "m")
        connection.execute("UPDATE t SET c7 = 0")
        for session, base in ((other, row), (third, tuple(value + 1 for value in row))):
            removed, added = sorted((change[1:] for change in changes(session, 2)), key=lambda change: change[0])
            assert (removed, added) == ((-1, *base), (1, *base[:7], base[7] - 7, *base[8:]))
        with pytest.raises(psycopg.Error, match=f"tables can have at most {COLUMNS_MAX} columns") as raised:
            connection.execute(f"CREATE TABLE u ({columns}, more int)".encode())
        assert raised.value.sqlstate == "54011"
        with pytest.raises(psycopg.Error, match=f"tables can have at most {COLUMNS_MAX} columns") as raised:
            connection.execute("CREATE VIEW v AS SELECT *, 1 AS more FROM t")
        assert raised.value.sqlstate == "54011"
        with pytest.raises(psycopg.Error, match=f"target lists can have at most {TARGETS_MAX} entries") as raised:
            connection.execute("SELECT * FROM t a, t b")
        assert raised.value.sqlstate == "54011"


SUMS = 150  # more than the fields for which Spark generates one function


@pytest.mark.sql
def test_long_lists(dsn: str) -> None:
    many = 2_000
    long_case = "CASE " + " ".join(f"WHEN k = {n} THEN {n + 1}" for n in range(500)) + " END"
    queries = {
        f"SELECT k FROM t WHERE k IN ({', '.join(map(str, range(0, many, 2)))})": [(0,), (1_998,), (4,)],
        f"SELECT k, {long_case} FROM t": [(0, 1), (1, 2), (1_998, None), (4, 5), (5_000, None)],
        f"SELECT k FROM t WHERE {' OR '.join(f'k = {n}' for n in range(500))}": [(0,), (1,), (4,)],
        " UNION ALL ".join(f"SELECT k FROM t WHERE k = {n}" for n in range(100)): [(0,), (1,), (4,)],
        f"SELECT {', '.join(f'sum(k + {n})' for n in range(SUMS))} FROM t": [tuple(7_003 + 5 * n for n in range(SUMS))],
    }
    with connected(dsn) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("INSERT INTO t VALUES (0), (1), (4), (1998)")
        for number, sql in enumerate(queries):
            connection.execute(f"CREATE MATERIALIZED VIEW m{number} AS SELECT * FROM ({sql}) q({_names(sql)})".encode())
        connection.execute("INSERT INTO t VALUES (5000)")
        for number, (sql, expected) in enumerate(queries.items()):
            assert rows(connection, sql) == sorted(expected, key=repr), sql[:60]
            assert rows(connection, f"SELECT * FROM m{number}") == sorted(expected, key=repr), sql[:60]


def _names(sql: str) -> str:
    """Returns unique column names for a query, whose own may not be unique."""
    return ", ".join(f"q{n}" for n in range(SUMS if "sum" in sql else 2 if "CASE" in sql else 1))


NESTED = 5_000
TOO_DEEP = {
    "parentheses": f"SELECT {'(' * NESTED}k{')' * NESTED} FROM t",
    "sums": f"SELECT {' + '.join(['k'] * NESTED)} FROM t",
    "functions": f"SELECT {'abs(' * NESTED}k{')' * NESTED} FROM t",
    "subqueries": f"SELECT * FROM {'(SELECT * FROM ' * NESTED}t{') a' * NESTED}",
}


@pytest.mark.parametrize("sql", TOO_DEEP.values(), ids=TOO_DEEP)
@pytest.mark.long
def test_too_deeply_nested_statements_are_refused(dsn: str, sql: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as neighbour:
        connection.execute("CREATE TABLE t (k int)")
        follow(neighbour, "t")
        for statement in (sql, f"CREATE MATERIALIZED VIEW m AS {sql}", f"CREATE VIEW v AS {sql}", f"SUBSCRIBE ({sql})"):
            with pytest.raises(errors.StatementTooComplex, match="stack depth limit exceeded"):
                connection.execute(statement.encode())
        connection.execute("INSERT INTO t VALUES (1)")
        assert changes(neighbour, 1)[0][1:] == (1, 1)
