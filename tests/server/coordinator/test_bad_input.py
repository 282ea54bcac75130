"""Rows on which an expression fails, and negative multiplicities: only affected queries fail, while the row exists."""

from __future__ import annotations

import ast
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from catalog import updates
from catalog.objects.tables import Table
from server.coordinator.committer import Request
from tests.fix_server import ServerThread
from tests.server.coordinator.test_dataflows import Connection, changes, connected, follow, rows
from tests.server.slow_engine import PassingEngine

BAD = "(1, 0, 'x')"
FAILING = {
    "filter": ("SELECT k FROM t WHERE 10 / v > 1", BAD, "22012"),
    "expression": ("SELECT k, 10 / v FROM t", BAD, "22012"),
    "cast": ("SELECT k, s::int FROM t", BAD, "22P02"),
    "overflow": ("SELECT k, v + 1 FROM t", "(1, 2147483647, '1')", "22003"),
    "join condition": ("SELECT t.k FROM t JOIN u ON t.k = u.k AND 10 / t.v > u.w", BAD, "22012"),
    "join key": ("SELECT t.k FROM t JOIN u ON 10 / t.v = u.w", BAD, "22012"),
    "outer join": ("SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k AND 10 / t.v > 0", BAD, "22012"),
    "semi join": ("SELECT k FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND 10 / t.v > u.w)", BAD, "22012"),
    "not in": ("SELECT k FROM t WHERE 10 / v NOT IN (SELECT w FROM u)", BAD, "22012"),
    "sum": ("SELECT k, sum(10 / v) FROM t GROUP BY k", BAD, "22012"),
    "overflowing sum": (
        "SELECT sum(9223372036854775800 + v)::int8 FROM t WHERE s = '7' OR s = ''",
        "(1, 1, '')",
        "22003",
    ),
    "maximum": ("SELECT k, max(10 / v) FROM t GROUP BY k", BAD, "22012"),
    "grouping": ("SELECT 10 / v, count(*) FROM t GROUP BY 10 / v", BAD, "22012"),
    "having": ("SELECT k FROM t GROUP BY k HAVING 10 / min(v) > 1", BAD, "22012"),
    "distinct": ("SELECT DISTINCT 10 / v FROM t", BAD, "22012"),
    "union": ("SELECT 10 / v FROM t UNION SELECT w FROM u", BAD, "22012"),
    "except": ("SELECT w FROM u EXCEPT ALL SELECT 10 / v FROM t", BAD, "22012"),
    "window": ("SELECT k, sum(10 / v) OVER (PARTITION BY k ORDER BY v) FROM t", BAD, "22012"),
    "top": ("SELECT k FROM t ORDER BY 10 / v DESC LIMIT 3", BAD, "22012"),
    "top of a key": ("SELECT u.k, l.v FROM u, LATERAL (SELECT v FROM t WHERE t.k = u.k ORDER BY 10 / v LIMIT 1) l",
                     BAD, "22012"),
    "two rows of a scalar subquery": ("SELECT w, (SELECT v FROM t WHERE t.k = u.k) FROM u", "(1, 5, '1')", "21000"),
    "two rows of a subquery of all": ("SELECT w, (SELECT v FROM t WHERE s = '1') FROM u", "(3, 5, '1')", "21000"),
    "common table expression": ("WITH a AS (SELECT k, 10 / v AS q FROM t) SELECT a.k, b.q FROM a JOIN a b USING (k)",
                                BAD, "22012"),
}  # fmt: skip


def ended(connection: Connection) -> psycopg.Error:
    """Fetches from the subscription until it fails, rolls back, and returns the error."""
    with pytest.raises(psycopg.Error) as raised:
        while connection.execute("FETCH 1 s WITH (TIMEOUT '60s')").fetchall():
            pass
    connection.rollback()
    return raised.value


@pytest.mark.ivm
@pytest.mark.parametrize("bad", sorted({bad for _, bad, _ in FAILING.values()}))
def test_a_row_on_which_operators_fail(dsn: str, bad: str) -> None:
    """Each query fails with its own SQLSTATE. Other dataflows continue. The views recover when the row is deleted."""
    with ExitStack() as stack:
        writer, neighbour = stack.enter_context(connected(dsn)), stack.enter_context(psycopg.connect(dsn))
        writer.execute("CREATE TABLE t (k int, v int, s text)")
        writer.execute("CREATE TABLE u (k int, w int)")
        writer.execute("INSERT INTO t VALUES (1, 2, '1'), (2, 5, '7')")
        writer.execute("INSERT INTO u VALUES (1, 1), (2, 3)")
        writer.execute("CREATE MATERIALIZED VIEW works AS SELECT k, count(*) AS n FROM t GROUP BY k")
        follow(neighbour, "works")
        failing = {}
        for number, (what, (sql, _, sqlstate)) in enumerate((w, f) for w, f in FAILING.items() if f[1] == bad):
            writer.execute(f"CREATE MATERIALIZED VIEW m{number} AS {sql}".encode())
            failing[what] = (f"m{number}", sql, sqlstate, stack.enter_context(psycopg.connect(dsn)))
        before = {view: rows(writer, f"SELECT * FROM {view}") for view, _, _, _ in failing.values()}
        for _, sql, _, subscriber in failing.values():
            follow(subscriber, f"({sql})")
        writer.execute(f"INSERT INTO t VALUES {bad}".encode())
        assert changes(neighbour, 1)
        for what, (_, _, sqlstate, subscriber) in failing.items():
            error = ended(subscriber)
            assert error.sqlstate == sqlstate, f"{what}: {error}"
            assert "Evaluation error: " in str(error), what
        writer.execute("INSERT INTO t VALUES (7, 7, '7')")  # does not repair the views
        writer.execute("INSERT INTO u VALUES (7, 7)")
        for what, (view, _, sqlstate, _) in failing.items():
            with pytest.raises(psycopg.Error) as raised:
                writer.execute(f"SELECT * FROM {view}".encode())
            assert raised.value.sqlstate == sqlstate, f"{what}: {raised.value}"
        writer.execute("DELETE FROM t WHERE k = 7")
        writer.execute("DELETE FROM u WHERE k = 7")
        k, v, text = ast.literal_eval(bad)
        writer.execute("DELETE FROM t WHERE k = %s AND v = %s AND s = %s", (k, v, text))
        for what, (view, _, _, _) in failing.items():
            assert rows(writer, f"SELECT * FROM {view}") == before[view], what
        writer.execute("INSERT INTO t VALUES (4, 1, '4')")
        for what, (view, sql, _, _) in failing.items():
            assert rows(writer, f"SELECT * FROM {view}") == rows(writer, sql), what
        received = [row[1:] for row in changes(neighbour, 2)]
        while received[-1] != (1, 4, 1):
            received += [row[1:] for row in changes(neighbour, 1)]
        assert (1, 7, 1) in received


def take_away(server: ServerThread, dsn: str, row: tuple[Any, ...], diff: int = -1) -> None:
    """Commits an update of `row` without checking that the row exists, as a faulty source would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ((id,),) = connection.execute("SELECT id FROM mz_tables WHERE name = 't'").fetchall()
    coordinator = server.app.coordinator
    assert isinstance(coordinator.state.items[id], Table)
    columns = [pa.array([value], type) for value, type in zip(row, (pa.int32(), pa.int32()), strict=True)]
    table = updates.with_diff(pa.table(columns, names=["c0", "c1"]), diff)

    async def commit() -> None:
        await coordinator.commit(Request([(id, coordinator.log.prepare(table))]))

    server.call(commit())


@pytest.mark.parametrize("hidden", [False, True], ids=["", "in a group"])
def test_a_negative_multiplicity_is_an_error_until_it_is_repaired(server: ServerThread, dsn: str, hidden: bool) -> None:
    queries = {
        "kept": "SELECT k, v FROM t WHERE v < 100",
        "joined": "SELECT a.k, b.v FROM t a JOIN t b ON a.k = b.k",
        "summed": "SELECT k, sum(v) AS s FROM t GROUP BY k",
        "united": "SELECT k FROM t UNION ALL SELECT 1",
        "kept_behind": "SELECT count(*) AS n FROM kept",
    }
    with connected(dsn) as writer:
        writer.execute("CREATE TABLE t (k int, v int)")
        writer.execute("CREATE TABLE other (k int)")
        writer.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 5)")
        for name, sql in queries.items():
            writer.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}".encode())
        with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two, psycopg.connect(dsn) as three:
            follow(one, "t")
            follow(two, "(SELECT k + v FROM t)")
            follow(three, "other")
            assert rows(writer, "SELECT * FROM kept_behind") == [(3,)]
            take_away(server, dsn, (1 if hidden else 9, 9))
            for session in (one, two):
                error = ended(session)
                assert error.sqlstate == "22000"
                assert "Evaluation error: the count of a row is negative" in str(error)
            for name in ("t", *queries):
                with pytest.raises(psycopg.errors.DataException, match="the count of a row is negative"):
                    writer.execute(f"SELECT * FROM {name}".encode())
            with pytest.raises(psycopg.errors.DataException, match="the count of a row is negative"):
                follow(one, "t", snapshot=True)
                one.execute("FETCH ALL s WITH (TIMEOUT '5s')")
            one.rollback()
            writer.execute("INSERT INTO other VALUES (1)")
            assert changes(three, 1)[0][1:] == (1, 1)
            take_away(server, dsn, (1 if hidden else 9, 9), 2)
            for sql in queries.values():
                name = next(n for n, s in queries.items() if s == sql)
                assert rows(writer, f"SELECT * FROM {name}") == rows(writer, sql)
            follow(one, "t")
            writer.execute("DELETE FROM t WHERE v = 9")
            assert changes(one, 1)[0][1:] == (-1, 1 if hidden else 9, 9)
            assert rows(writer, "SELECT * FROM summed") == [(1, 5), (2, 5)]


def test_a_negative_multiplicity_is_an_error_after_a_restart(tmp_path: Path) -> None:
    """After the restart, the view processes the negative multiplicity that was committed before."""
    below_zero = "the count of a row is negative"
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with connected(server.dsn()) as writer:
            writer.execute("CREATE TABLE t (k int, v int)")
            writer.execute("INSERT INTO t VALUES (1, 2)")
            writer.execute("CREATE MATERIALIZED VIEW m AS SELECT v FROM t")
            assert rows(writer, "SELECT * FROM m") == [(2,)]
            take_away(server, server.dsn(), (9, 9))
            with pytest.raises(psycopg.errors.DataException, match=below_zero):
                writer.execute("SELECT * FROM m")
    finally:
        server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with connected(server.dsn()) as writer, psycopg.connect(server.dsn()) as other:
            for relation in ("t", "m"):
                with pytest.raises(psycopg.errors.DataException, match=below_zero):
                    writer.execute(f"SELECT * FROM {relation}".encode())
            take_away(server, server.dsn(), (9, 9), 3)
            assert rows(writer, "SELECT * FROM m") == [(2,), (9,), (9,)]
            follow(other, "m")
            writer.execute("INSERT INTO t VALUES (3, 4)")
            assert changes(other, 1)[0][1:] == (1, 4)
    finally:
        server.stop()
