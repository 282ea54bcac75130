"""Concurrent dataflows: a slow one delays no other, and emits each commit at its timestamp when it catches up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from server.dataflow.runtime import statement_limit
from server.spark.engine import SparkEngine
from server.timeline.frontiers import RETENTION_MS
from tests.fix_server import ServerThread
from tests.polling import HANG_S
from tests.server.coordinator.test_dataflows import changes, connected, follow, rows
from tests.server.slow_engine import SlowEngine

COMMITS = 12
BRANCHES = 6


@pytest.fixture
def slow(engine: SparkEngine) -> Iterator[SlowEngine]:
    slow = SlowEngine(engine, "'slow'")
    yield slow
    slow.open()


@pytest.fixture
def server(slow: SlowEngine, tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path, slow)
    yield server
    server.stop()


def steps(connection: psycopg.Connection[Any], id: str) -> int:
    (row,) = connection.execute("SELECT steps FROM mz_internal.mz_dataflows WHERE id = %s", (id,)).fetchall()
    return int(row[0])


def test_a_lagging_dataflow_catches_up_in_few_steps(server: ServerThread, slow: SlowEngine) -> None:
    with (
        connected(server.dsn()) as connection,
        psycopg.connect(server.dsn()) as behind,
        psycopg.connect(server.dsn()) as ahead,
    ):
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (0, 0)")
        follow(ahead, "t")
        follow(behind, "(SELECT k, count(*) AS n, max(v) AS m FROM t WHERE 'slow' <> k::text GROUP BY k)")
        (id,) = connection.execute("SELECT id FROM mz_internal.mz_dataflows").fetchone() or ("",)
        before = steps(connection, id)
        with slow.shut_gate():
            for number in range(COMMITS):
                connection.execute("INSERT INTO t VALUES (%s, %s)", (number % 2, number))
            times = [row[0] for row in changes(ahead, COMMITS)]
            assert slow.waiting_at_gate.wait(HANG_S)
        expected: dict[int, tuple[int, int]] = {0: (1, 0)}
        for number, at in enumerate(times):
            key = number % 2
            gone = expected.get(key)
            expected[key] = new = (gone[0] + 1, max(gone[1], number)) if gone else (1, number)
            wanted = [(at, 1, key, *new), *([(at, -1, key, *gone)] if gone else [])]
            assert sorted(changes(behind, len(wanted))) == sorted(wanted)
        assert steps(connection, id) - before <= COMMITS // 2


def test_a_slow_dataflow_does_not_delay_others(server: ServerThread, slow: SlowEngine) -> None:
    """The slow dataflow has more statements to run than the engine has slots."""
    branches = " UNION ALL ".join(
        f"SELECT k, max(v) AS m FROM t WHERE 'slow' <> k::text AND v % 10 <> {branch} GROUP BY k"
        for branch in range(BRANCHES)
    )
    with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as other:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (0, 7)")
        connection.execute(f"CREATE MATERIALIZED VIEW many AS {branches}".encode())
        connection.execute("CREATE MATERIALIZED VIEW one AS SELECT k, max(v) AS m FROM t GROUP BY k")
        assert rows(connection, "SELECT * FROM many") == [(0, 7)] * BRANCHES
        follow(other, "(SELECT min(v) FROM t)")
        with slow.shut_gate():
            for number in range(1, COMMITS):
                connection.execute("INSERT INTO t VALUES (0, %s)", (7 + number,))
                assert rows(connection, "SELECT * FROM one") == [(0, 7 + number)]
            connection.execute("INSERT INTO t VALUES (0, 1)")
            assert sorted(row[1:] for row in changes(other, 2)) == [(-1, 7), (1, 1)]
            assert slow.waiting_at_gate.wait(HANG_S)
            assert slow.at_gate <= statement_limit.STATEMENTS_MAX
        assert rows(connection, "SELECT * FROM many") == [(0, 6 + COMMITS)] * BRANCHES


def test_a_recomputed_dataflow_catches_up(server: ServerThread, slow: SlowEngine) -> None:
    with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as behind:
        follow(behind, "(SELECT name FROM mz_catalog.mz_tables WHERE name LIKE 'late%' AND name <> 'slow')")
        with slow.shut_gate():
            for number in range(5):
                connection.execute(f"CREATE TABLE late{number} (a int)".encode())
            assert slow.waiting_at_gate.wait(HANG_S)
        found = changes(behind, 5)
        assert [row[1:] for row in found] == [(1, f"late{number}") for number in range(5)]
        assert len({row[0] for row in found}) == 5
        assert time.time() * 1e3 > found[-1][0]


def test_a_dataflow_that_lagged_at_shutdown_skips_no_timestamp(slow: SlowEngine, tmp_path: Path) -> None:
    """Its input retains one second of history. Updates that the dataflow has not processed are kept for longer."""
    server = ServerThread(tmp_path, slow)
    try:
        with connected(server.dsn()) as connection:
            connection.execute("CREATE TABLE t (k int)")
            connection.execute("CREATE MATERIALIZED VIEW a AS SELECT k + 1 AS k FROM t")
            connection.execute(
                "CREATE MATERIALIZED VIEW b AS SELECT k, count(*) AS n FROM a WHERE 'slow' <> k::text GROUP BY k"
            )
            connection.execute("INSERT INTO t VALUES (0)")
            assert rows(connection, "SELECT * FROM b") == [(1, 1)]
            connection.execute("CREATE HOLD h ON t, b")
            ((start,),) = rows(connection, 'SELECT "at"::text FROM mz_holds')
            with slow.shut_gate():
                for _ in range(COMMITS):
                    connection.execute("INSERT INTO t VALUES (0)")
                last = int(rows(connection, "SELECT mz_now()::text")[0][0])
                assert slow.waiting_at_gate.wait(HANG_S)
                deadline = time.monotonic() + 30
                while int(rows(connection, "SELECT mz_now()::text")[0][0]) < last + 2 * RETENTION_MS:
                    assert time.monotonic() < deadline
                assert rows(connection, "SELECT count(*) FROM a") == [(COMMITS + 1,)]
                server.stop()
        server = ServerThread(tmp_path, slow)
        with connected(server.dsn()) as connection:
            assert rows(connection, "SELECT * FROM b") == [(1, COMMITS + 1)]
            (end,) = rows(connection, "SELECT mz_now()::text")[0]
            history = f"WITH (SNAPSHOT false) AS OF {start} UP TO {end}"
            times = [row[0] for row in connection.cursor().stream(f"SUBSCRIBE t {history}")]
            found = [(row[0], *row[1:]) for row in connection.cursor().stream(f"SUBSCRIBE b {history}")]
            wanted = []
            for before, at in enumerate(times, COMMITS + 1 - len(times)):  # the hold may begin before the first row
                wanted += [(at, -1, 1, before)] if before else []
                wanted += [(at, 1, 1, before + 1)]
            assert len(times) >= COMMITS
            assert found == wanted
    finally:
        server.stop()
