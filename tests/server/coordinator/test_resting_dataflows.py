"""Views at rest: their rows are complete at every time, and a commit that does not concern them costs no step."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_server import ServerThread
from tests.server.execution.test_subscribe import Follower, connect, now

VIEWS = {
    "a": "SELECT n * 2 AS n FROM t WHERE k = 1",
    "b": "SELECT k, count(*) AS c, sum(n) AS s FROM t WHERE k IN (1, 2) GROUP BY k",
    "c": "SELECT t.n, u.m FROM t JOIN u ON t.n = u.n WHERE t.k = 2",
    "d": "SELECT n FROM a WHERE n = 4",
    "e": "SELECT a.n, t.k FROM a JOIN t ON a.n = t.n",
    "f": "SELECT n FROM t WHERE k = 1 UNION ALL SELECT m FROM u WHERE n = 3 UNION ALL SELECT n + 10 FROM d",
    "g": "SELECT m FROM u WHERE n = 1",
    "h": "SELECT max(n) AS n FROM t WHERE k = 3",
}
number = st.integers(0, 4)
write = st.one_of(
    st.tuples(st.just("INSERT INTO t VALUES ({}, {})"), number, number),
    st.tuples(st.just("INSERT INTO u VALUES ({}, {})"), number, number),
    st.tuples(st.just("UPDATE t SET k = {} WHERE k = {}"), number, number),
    st.tuples(st.just("DELETE FROM t WHERE k = {} OR n = {}"), number, number),
    st.tuples(st.just("DELETE FROM u WHERE n = {} AND m <> {}"), number, number),
)


@pytest.fixture
def db(dsn: str) -> Any:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (k int, n int)")
        connection.execute("CREATE TABLE u (n int, m int)")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}".encode())
        yield connection


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(write, min_size=4, max_size=12), seed=st.integers(0, 2**16))
def test_views_are_complete_at_every_time(
    dsn: str, db: psycopg.Connection[Any], history: list[tuple[str, int, int]], seed: int
) -> None:
    db.execute("TRUNCATE t, u")
    followers = {
        query: Follower(dsn, query) for query in ("SELECT n FROM d", "SELECT n, k FROM e", "SELECT n + 1 AS n FROM f")
    }
    try:
        dice = random.Random(seed)
        for statement, *values in history:
            db.execute(statement.format(*values).encode())
            if dice.random() < 0.6:
                check(db, dice.sample([*VIEWS], 3))
        check(db, [*VIEWS])
        for query, follower in followers.items():
            assert follower.at(now(db)) == Counter(db.execute(query.encode()).fetchall())
            assert follower.progress == sorted(set(follower.progress))
    finally:
        for follower in followers.values():
            follower.stop()


def check(db: psycopg.Connection[Any], names: list[str]) -> None:
    for name in names:
        with db.transaction():
            kept = Counter(db.execute(f"SELECT * FROM {name}".encode()).fetchall())
            computed = Counter(db.execute(VIEWS[name].encode()).fetchall())
        assert kept == computed, name


def test_a_commit_that_does_not_concern_a_view_costs_no_step(
    server: ServerThread, dsn: str, db: psycopg.Connection[Any]
) -> None:
    steps = "SELECT v.name, d.steps FROM mz_internal.mz_dataflows d JOIN mz_materialized_views v ON v.id = d.object_id"
    check(db, [*VIEWS])
    before = dict(db.execute(steps).fetchall())
    for value in range(5):
        db.execute(f"INSERT INTO t VALUES (3, {value})".encode())
    check(db, [*VIEWS])
    after = dict(db.execute(steps).fetchall())
    assert {name for name in before if after[name] > before[name]} == {"e", "h"}
