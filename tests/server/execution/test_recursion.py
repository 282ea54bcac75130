"""WITH RECURSIVE ... UNION: maintained results, cancellation, and the bounds of a recursion that does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import psycopg
import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.runtime import spark_rows as module
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_query
from server.sql.plan import QueryPlan, plan_query
from tests.server.sql.test_plan import CONTEXT

REACH = (
    "WITH RECURSIVE reach (a, b) AS "
    "(SELECT a, b FROM edges UNION SELECT r.a, e.b FROM reach r, edges e WHERE e.a = r.b) SELECT a, b FROM reach"
)
ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT n + 1 FROM r) SELECT n FROM r"


def plan(sql: str) -> QueryPlan:
    return plan_query(parse_query(sql), CONTEXT)


class Counting:
    """An engine whose recursive term yields one new row of `width` characters in every iteration."""

    def __init__(self, width: int = 1, rows: int = 1) -> None:
        self.statements: list[str] = []
        self._row, self._rows = "x" * width, rows

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        self.statements.append(sql)
        return pa.table({"c0": [self._row] * self._rows})


TEXTS = "WITH RECURSIVE r (n) AS (SELECT 'x' UNION SELECT n || 'x' FROM r) SELECT n FROM r"


def test_an_endless_recursion_ends_after_a_number_of_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ITERATIONS_MAX", 7)
    engine = Counting()
    with pytest.raises(PgError, match="a recursive query did not end") as raised:
        asyncio.run(module.spark_rows(plan(TEXTS), Bindings(), engine, {}))
    assert raised.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED
    assert len(engine.statements) == 8  # the anchor and the iterations


def test_the_rows_of_a_recursion_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECURSIVE_ROWS_MAX", 1000)
    with pytest.raises(PgError, match="a recursive query of more than 1000 rows") as raised:
        asyncio.run(module.spark_rows(plan(TEXTS), Bindings(), Counting(rows=300), {}))
    assert raised.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED


def test_the_bytes_of_a_recursion_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECURSIVE_BYTES_MAX", 1 << 20)
    with pytest.raises(PgError) as raised:
        asyncio.run(module.spark_rows(plan(TEXTS), Bindings(), Counting(width=1 << 18), {}))
    assert raised.value.sqlstate == SqlState.OUT_OF_MEMORY


def test_a_recursion_that_depends_on_the_query_around_it_is_refused() -> None:
    with pytest.raises(PgError) as raised:
        plan("SELECT (WITH RECURSIVE r (n) AS (SELECT t.a UNION SELECT n FROM r) SELECT max(n) FROM r) FROM t")
    assert raised.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED


def test_plans_that_differ_in_the_recursion_have_different_fingerprints() -> None:
    other = ENDLESS.replace("n + 1", "n + 2")
    assert plan(ENDLESS).fingerprint != plan(other).fingerprint


def test_a_maintained_recursion_follows_its_tables(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE edges (a int, b int)")
        connection.execute("INSERT INTO edges VALUES (1, 2), (2, 3)")
        connection.execute(f"CREATE MATERIALIZED VIEW reach AS {REACH}")
        assert connection.execute("SELECT * FROM reach ORDER BY 1, 2").fetchall() == [(1, 2), (1, 3), (2, 3)]
        connection.execute("INSERT INTO edges VALUES (3, 1)")
        expected = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]
        assert connection.execute("SELECT * FROM reach ORDER BY 1, 2").fetchall() == expected
        connection.execute("DELETE FROM edges WHERE a = 2")
        assert connection.execute("SELECT * FROM reach ORDER BY 1, 2").fetchall() == [(1, 2), (3, 1), (3, 2)]
        explained = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {REACH}"))
        assert "Recursive union" in explained
        spark = "\n".join(line for (line,) in connection.execute(f"EXPLAIN SPARK PLAN FOR {REACH}"))
        assert "Physical Plan" in spark
        assert (
            "Kept up to date: recomputed when an input changes, because there is no rule for WITH RECURSIVE"
            in explained
        ), explained


CYCLE = (
    "WITH RECURSIVE walk (a, b) AS "
    "(SELECT a, b FROM edges WHERE a = 1 UNION {all}SELECT e.a, e.b FROM walk w, edges e WHERE e.a = w.b) "
    "SEARCH DEPTH FIRST BY a, b SET place CYCLE a, b SET ends USING path "
    "SELECT a, b, row_number() OVER (ORDER BY place) AS number, ends, cardinality(path) AS length FROM walk"
)


@pytest.mark.parametrize("word", ["", "ALL "])
@pytest.mark.long
def test_search_and_cycle_are_maintained(dsn: str, word: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE edges (a int, b int)")
        connection.execute("INSERT INTO edges VALUES (1, 2), (2, 3), (2, 4)")
        connection.execute(f"CREATE MATERIALIZED VIEW walk AS {CYCLE.format(all=word)}")
        rows = [(1, 2, 1, False, 1), (2, 3, 2, False, 2), (2, 4, 3, False, 2)]
        assert connection.execute("SELECT * FROM walk ORDER BY number").fetchall() == rows
        connection.execute("INSERT INTO edges VALUES (3, 1)")
        rows = [(1, 2, 1, False, 1), (2, 3, 2, False, 2), (3, 1, 3, False, 3), (1, 2, 4, True, 4), (2, 4, 5, False, 2)]
        assert connection.execute("SELECT * FROM walk ORDER BY number").fetchall() == rows
        assert connection.execute(f"SELECT * FROM ({CYCLE.format(all=word)}) w ORDER BY number").fetchall() == rows


def test_search_and_cycle_keep_their_names_in_a_view(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE edges (a int, b int)")
        connection.execute("INSERT INTO edges VALUES (1, 1)")
        connection.execute(f"CREATE VIEW walk AS {CYCLE.format(all='ALL ')}")
        connection.execute("ALTER TABLE edges RENAME TO lines")
        assert connection.execute("SELECT b, ends, length FROM walk").fetchall() == [(1, False, 1), (1, True, 2)]


def test_search_and_cycle_precede_writes(dsn: str) -> None:
    numbers = (
        "WITH RECURSIVE r (n, m) AS (VALUES (1, 1) UNION ALL SELECT n % 3 + 1, m FROM r) "
        "SEARCH DEPTH FIRST BY n, m SET place CYCLE n, m SET c TO 1 DEFAULT 0 USING p"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b int)")
        connection.execute(f"INSERT INTO t {numbers} SELECT n, c FROM r")
        connection.execute(f"{numbers} INSERT INTO t SELECT n, c FROM r WHERE c = 1")
        connection.execute(f"{numbers}, w AS (DELETE FROM t WHERE b = 1 RETURNING a) SELECT * FROM w, r")
        assert connection.execute("SELECT a, b FROM t ORDER BY a").fetchall() == [(1, 0), (2, 0), (3, 0)]


def test_an_endless_recursion_obeys_the_statement_timeout(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '4s'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert connection.execute("SELECT 1").fetchone() == (1,)
