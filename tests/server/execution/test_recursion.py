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


def test_an_endless_recursion_obeys_the_statement_timeout(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '4s'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert connection.execute("SELECT 1").fetchone() == (1,)
