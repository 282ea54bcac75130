"""Materialized views and subscriptions as a client sees them: errors, restarts, timestamps, temporal filters."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from catalog.objects.indexes import Index
from catalog.state import CatalogState
from server.spark.engine import SparkEngine
from server.sql.plan import QueryPlan
from server.sql.stored_query import plan_index, plan_stored
from tests.fix_server import ServerThread
from tests.polling import HANG_S, until
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def rows(connection: Connection, sql: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(sql).fetchall(), key=repr)


def follow(connection: Connection, what: str, snapshot: bool = False) -> None:
    """Declares the cursor `s` for a subscription and fetches its first progress message."""
    options = f"PROGRESS, SNAPSHOT {str(snapshot).lower()}"
    connection.execute(f"DECLARE s CURSOR FOR SUBSCRIBE {what} WITH ({options})")
    connection.execute("FETCH 1 s WITH (TIMEOUT '60s')")


def changes(connection: Connection, count: int) -> list[tuple[Any, ...]]:
    """Fetches `count` updates as `(time, diff, *row)`, without progress messages."""
    found: list[tuple[Any, ...]] = []
    while len(found) < count:
        fetched = connection.execute("FETCH 1 s WITH (TIMEOUT '60s')").fetchall()
        assert fetched, f"only {found} in time"
        found += [(int(time), diff, *row) for time, progressed, diff, *row in fetched if not progressed]
    return found


QUERY = "SELECT c.name, count(*) AS n, sum(o.v) AS s, max(o.v) AS m FROM o JOIN c ON o.c = c.id GROUP BY c.name"


def test_a_view_is_maintained_after_a_restart(engine: SparkEngine, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, engine)
    try:
        with connected(server.dsn()) as connection:
            connection.execute("CREATE TABLE o (c int, v int)")
            connection.execute("CREATE TABLE c (id int, name text)")
            connection.execute("INSERT INTO c VALUES (1, 'a'), (2, 'b')")
            connection.execute("INSERT INTO o VALUES (1, 5), (1, 7), (2, 1), (NULL, 9)")
            connection.execute(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
            connection.execute("CREATE MATERIALIZED VIEW top AS SELECT name, s FROM m ORDER BY s DESC, name LIMIT 1")
            assert rows(connection, "SELECT * FROM m") == [("a", 2, 12, 7), ("b", 1, 1, 1)]
            connection.execute("UPDATE o SET v = 6 WHERE v = 5")
            assert rows(connection, "SELECT * FROM top") == [("a", 13)]
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as other:
            assert rows(connection, "SELECT * FROM m") == [("a", 2, 13, 7), ("b", 1, 1, 1)]
            follow(other, "m")
            connection.execute("DELETE FROM o WHERE v = 7")
            connection.execute("INSERT INTO o VALUES (2, 40)")
            found = changes(other, 4)
            assert sorted(row[1:] for row in found[:2]) == [(-1, "a", 2, 13, 7), (1, "a", 1, 6, 6)]
            assert sorted(row[1:] for row in found[2:]) == [(-1, "b", 1, 1, 1), (1, "b", 2, 41, 40)]
            assert found[0][0] == found[1][0] < found[2][0] == found[3][0]
            assert rows(connection, "SELECT * FROM m") == rows(connection, QUERY)
            assert rows(connection, "SELECT * FROM top") == [("b", 41)]
    finally:
        server.stop()


def test_an_evaluation_error_affects_only_its_dependents_until_the_row_is_deleted(dsn: str) -> None:
    with connected(dsn) as connection:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (1, 2)")
        connection.execute("CREATE MATERIALIZED VIEW fails AS SELECT k, 10 / v AS q FROM t")
        connection.execute("CREATE MATERIALIZED VIEW behind AS SELECT max(q) AS m FROM fails")
        connection.execute("CREATE MATERIALIZED VIEW works AS SELECT k, sum(v) AS s FROM t GROUP BY k")
        assert rows(connection, "SELECT * FROM fails") == [(1, 5)]
        connection.execute("INSERT INTO t VALUES (1, 0)")
        connection.execute("INSERT INTO t VALUES (2, 5)")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT * FROM fails")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT * FROM behind")
        assert rows(connection, "SELECT * FROM works") == [(1, 2), (2, 5)]
        connection.execute("DELETE FROM t WHERE v = 0")
        assert rows(connection, "SELECT * FROM fails") == [(1, 5), (2, 2)]
        assert rows(connection, "SELECT * FROM behind") == [(5,)]
        with psycopg.connect(dsn) as other:
            follow(other, "(SELECT k, 10 / v FROM t)")
            connection.execute("INSERT INTO t VALUES (3, 1)")
            connection.execute("INSERT INTO t VALUES (3, 0)")
            (row,) = changes(other, 1)
            assert row[1:] == (1, 3, 10)
            with pytest.raises(errors.DivisionByZero):
                changes(other, 1)


def test_a_view_that_fails_to_hydrate_recovers_when_its_input_is_repaired(dsn: str) -> None:
    with connected(dsn) as connection:
        connection.execute("CREATE TABLE t (v int)")
        connection.execute("INSERT INTO t VALUES (0), (5)")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT 10 / v AS q FROM t")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT * FROM m")
        connection.execute("DELETE FROM t WHERE v = 0")
        assert rows(connection, "SELECT * FROM m") == [(2,)]


def test_the_rows_of_a_query_are_freed_when_its_subscriber_disconnects(server: ServerThread, dsn: str) -> None:
    """Without a collection of cyclic garbage: a client could subscribe again and again before the next one."""
    freed = threading.Event()
    with connected(dsn) as writer:
        writer.execute("CREATE TABLE t (s text)")
        writer.execute("INSERT INTO t VALUES ('a')")
        gc.disable()
        try:
            reader = psycopg.connect(dsn, autocommit=True)
            copy = reader.cursor().copy("COPY (SUBSCRIBE (SELECT upper(s) FROM t WHERE s > '')) TO STDOUT")
            assert copy.__enter__().read()
            (feed,) = server.app.coordinator.queries._feeds.values()
            weakref.finalize(feed._accumulated, freed.set)
            del feed
            reader.close()
            assert freed.wait(HANG_S)
        finally:
            gc.enable()


def test_an_update_has_the_time_of_its_commit(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other, psycopg.connect(dsn) as third:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k")
        for session, relation in ((other, "t"), (third, "m")):
            follow(session, relation)
        for number in range(3):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
        ours, theirs = changes(third, 3), changes(other, 3)
        assert [row[0] for row in ours] == [row[0] for row in theirs]
        assert [row[1:] for row in ours] == [(1, number, 1) for number in range(3)]


def test_a_temporal_filter_changes_the_output_at_the_bounds_of_a_row(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute("CREATE TABLE t (k int, ends numeric(20))")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k FROM t WHERE mz_now() < ends")
        (now,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
        end = int(now) + 5_000
        connection.execute("INSERT INTO t VALUES (1, %s), (2, 1000), (3, 4102444800000), (4, NULL)", (end,))
        assert rows(connection, "SELECT * FROM m") == [(1,), (3,)]
        follow(other, "m", snapshot=True)
        found = changes(other, 3)
        assert sorted(row[1:] for row in found[:2]) == [(1, 1), (1, 3)]
        assert found[2] == (end, -1, 1)
        assert rows(connection, "SELECT * FROM m") == [(3,)]
        other.rollback()
        values = f"(VALUES (0, 1), ({end + 1000}, 2)) v(a, n)"
        follow(other, f"(SELECT n FROM {values} WHERE mz_now() >= a)", snapshot=True)
        found = changes(other, 2)
        assert found[0][1:] == (1, 1)
        assert found[1] == (end + 1000, 1, 2)


@pytest.mark.parametrize("type", ["timestamptz", "timestamp"])
def test_mz_now_is_compared_with_timestamps_and_dates(dsn: str, type: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute(f"CREATE TABLE t (k int, made {type})".encode())
        soon = int((connection.execute("SELECT mz_now()").fetchone() or (0,))[0]) + 5_000
        made = f"(timestamp '1970-01-01' + interval '{soon - 3_600_000} ms')::{type}"
        connection.execute(
            f"INSERT INTO t VALUES (1, {made}), (2, '2000-01-01'), (3, '2100-01-01'), (4, NULL)".encode()
        )
        follow(other, "(SELECT k FROM t WHERE mz_now() <= made + interval '1 hour')", snapshot=True)
        found = changes(other, 3)
        assert sorted(row[1:] for row in found[:2]) == [(1, 1), (1, 3)]
        assert found[2] == (soon + 1, -1, 1)
        compared = "SELECT k FROM t WHERE mz_now() > made AND made::date < mz_now() ORDER BY k"
        assert [row for row in rows(connection, compared) if row != (1,)] == [(2,)]
        assert rows(connection, "SELECT mz_now() > date '2000-01-01', mz_now() > now() + interval '1 day'") == [
            (True, False)
        ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT mz_now() FROM t",
        "SELECT k FROM t WHERE mz_now() > 5 OR k > 1",
        "SELECT k FROM t WHERE mz_now() + 1 > k",
        "SELECT k FROM t GROUP BY k HAVING mz_now() > max(k) + mz_now()",
        "SELECT count(*) FILTER (WHERE mz_now() > k) FROM t",
        "SELECT 1 FROM t a JOIN t b ON mz_now() > a.k",
    ],
)
def test_mz_now_is_refused_outside_temporal_filters(dsn: str, sql: str) -> None:
    with connected(dsn) as connection:
        connection.execute("CREATE TABLE t (k int)")
        with pytest.raises(errors.FeatureNotSupported, match=r"cannot materialize call to mz_now\(\)"):
            connection.execute(f"CREATE MATERIALIZED VIEW m AS {sql}")


NO_RULE = "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE mz_now() < u.ends + t.k)"


def test_a_temporal_filter_without_a_rule_is_refused_before_the_commit(engine: SparkEngine, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, engine)
    try:
        with connected(server.dsn()) as connection:
            connection.execute("CREATE TABLE t (k int)")
            connection.execute("CREATE TABLE u (ends numeric)")
            connection.execute(f"CREATE VIEW plain AS {NO_RULE}")
            for sql in (
                f"CREATE MATERIALIZED VIEW refused AS {NO_RULE}",
                "CREATE MATERIALIZED VIEW refused AS SELECT k FROM plain",
                "CREATE INDEX refused ON plain (k)",
                f"COPY (SUBSCRIBE ({NO_RULE})) TO STDOUT",
                "COPY (SUBSCRIBE plain) TO STDOUT",
            ):
                with pytest.raises(errors.FeatureNotSupported, match="temporal filter") as refusal:
                    connection.execute(sql.encode())
                assert "no rule for mz_now() combined with columns of several" in (
                    refusal.value.diag.message_detail or ""
                )
            explained = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {NO_RULE}".encode()).fetchall())
            assert "Kept up to date: not possible, because there is no rule for mz_now() combined with" in explained
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with connected(server.dsn()) as connection:
            names = rows(connection, "SELECT name FROM mz_catalog.mz_objects WHERE id LIKE 'u%' AND name <> 'public'")
            assert names == [("plain",), ("t",), ("u",)]
    finally:
        server.stop()


def test_a_view_with_a_temporal_filter_over_a_table_of_the_same_transaction(dsn: str) -> None:
    with connected(dsn) as connection, connection.transaction():
        connection.execute("CREATE TABLE t (k int, ends numeric)")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k FROM t WHERE mz_now() < ends")
        connection.execute("CREATE VIEW v AS SELECT k FROM t WHERE mz_now() < ends")
        connection.execute("CREATE INDEX i ON v (k)")
    with connected(dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1, 4102444800000), (2, 0)")
        assert rows(connection, "SELECT * FROM m") == [(1,)]


@pytest.mark.slow
def test_a_view_that_cannot_be_planned_reports_its_error_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other dataflows run, also those that the same commit creates, and the server can restart."""
    broken: set[str] = set()

    def planned(view: str | Index, state: CatalogState) -> QueryPlan:
        name = view.name if isinstance(view, Index) else view
        if any(part in name for part in broken):
            raise ValueError("there is no plan")
        return plan_index(view, state) if isinstance(view, Index) else plan_stored(view, state)

    monkeypatch.setattr("server.coordinator.computations.plan_stored", planned)
    monkeypatch.setattr("server.coordinator.computations.plan_index", planned)
    of_views = "SELECT rule, error FROM mz_internal.mz_dataflows"
    states = "SELECT state FROM mz_internal.mz_hydration_statuses"
    error = "internal error: ValueError"
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as other:
            connection.execute("CREATE TABLE t (a int, b int)")
            connection.execute("CREATE TABLE u (a int, b int)")
            follow(other, "t")
            broken.update(("a > 1", "second"))
            connection.execute("CREATE MATERIALIZED VIEW first AS SELECT a FROM t WHERE a > 1")
            connection.execute("CREATE VIEW plain AS SELECT a FROM t WHERE a > 2")
            with connection.transaction():
                connection.execute("CREATE INDEX second ON plain (a)")
                connection.execute("CREATE MATERIALIZED VIEW third AS SELECT a FROM u")
            connection.execute("INSERT INTO u VALUES (3, 0)")
            connection.execute("INSERT INTO t VALUES (5, 0)")
            assert rows(connection, "SELECT * FROM third") == [(3,)]
            assert changes(other, 1)[0][1:] == (1, 5, 0)
            with pytest.raises(errors.InternalError_, match="internal error: ValueError"):
                connection.execute("SELECT * FROM first")
            assert rows(connection, of_views) == [("incremental", None), *2 * [("unplanned", error)]]
            assert rows(connection, states) == [*2 * [("failed",)], ("hydrated",)]
    finally:
        server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with connected(server.dsn()) as connection:
            with pytest.raises(errors.InternalError_, match="internal error: ValueError"):
                connection.execute("SELECT * FROM first")
            broken.clear()
            connection.execute("INSERT INTO t VALUES (6, 0)")
            assert rows(connection, "SELECT * FROM first") == [(5,), (6,)]
            until(lambda: rows(connection, of_views) == 3 * [("incremental", None)])
            connection.execute("DELETE FROM t WHERE a = 5")
            assert rows(connection, "SELECT * FROM first") == [(6,)]
    finally:
        server.stop()


def test_a_dataflow_over_system_tables_is_recomputed(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute("CREATE TABLE t (k int)")
        lines = [row[0] for row in connection.execute(
            "EXPLAIN SELECT o.name FROM mz_catalog.mz_objects o JOIN t ON true").fetchall()]  # fmt: skip
        assert "recomputed when an input changes" in lines[-1]
        follow(other, "(SELECT name FROM mz_catalog.mz_tables WHERE name LIKE 'tt%')")
        connection.execute("CREATE TABLE tt2 (k int)")
        (row,) = changes(other, 1)
        assert row[1:] == (1, "tt2")


def test_system_tables_show_dataflows_and_their_arrangements(dsn: str) -> None:
    with connected(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute("CREATE TABLE o (c int, v int)")
        connection.execute("CREATE TABLE c (id int, name text)")
        connection.execute("INSERT INTO c VALUES (1, 'a'), (2, 'b')")
        connection.execute(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
        connection.execute("INSERT INTO o VALUES (1, 5), (1, 7), (2, 1)")
        assert len(rows(connection, "SELECT * FROM m")) == 2
        of_view = "FROM mz_internal.mz_{} d JOIN mz_catalog.mz_materialized_views v ON v.id = d.{} AND v.name = 'm'"
        ((rule, hydrated, steps, error),) = rows(
            connection, "SELECT rule, hydrated, steps, error " + of_view.format("dataflows", "object_id")
        )
        assert (rule, hydrated, error) == ("incremental", True, None)
        assert steps >= 1
        kept = rows(connection, "SELECT sorted_by, rows " + of_view.format("arrangements", "dataflow_id"))
        assert sorted(kept) == [("c", 3), ("id", 2), ("name", 2), ("name, v", 3), ("name, v", 3)]
        follow(other, "(SELECT name FROM mz_catalog.mz_tables)")
        of_queries = "SELECT rule FROM mz_internal.mz_dataflows WHERE object_id IS NULL AND hydrated"
        assert ("recomputed",) in rows(connection, of_queries)
