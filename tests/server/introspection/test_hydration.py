"""Progress and statistics of dataflows in system tables, metrics and the log."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import errors
from structlog.testing import capture_logs

from server.dataflow.runtime import hydration
from server.spark.engine import SparkEngine
from tests.fix_server import ServerThread
from tests.polling import until
from tests.server.http.test_port import scrape

Connection = psycopg.Connection[Any]


class Gate:
    """An engine in which the statements of dataflows wait until `opened` is set."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.opened = threading.Event()
        self.opened.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, **options: Any) -> pa.Table:
        if patient and not self.opened.is_set():
            await asyncio.to_thread(self.opened.wait)
        return await self._engine.run(sql, views, patient=patient, **options)


@pytest.fixture
def gate(engine: SparkEngine) -> Iterator[Gate]:
    gate = Gate(engine)
    yield gate
    gate.opened.set()


@pytest.fixture
def server(gate: Gate, tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path, gate)
    yield server
    gate.opened.set()
    server.stop()


@pytest.fixture
def db(server: ServerThread) -> Iterator[Connection]:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE o (c int, v int)")
        connection.execute("CREATE TABLE c (id int, name text)")
        connection.execute("INSERT INTO c VALUES (1, 'a'), (2, 'b')")
        connection.execute("INSERT INTO o VALUES (1, 5), (1, 7), (2, 1)")
        yield connection


def one(db: Connection, sql: str) -> tuple[Any, ...]:
    (row,) = db.execute(sql.encode()).fetchall()
    return tuple(row)


STATUS = (
    "SELECT state, hydrated, rows_read, rows_there, operators_done, operators FROM mz_internal.mz_hydration_statuses"
)
VIEW = (
    "CREATE MATERIALIZED VIEW m AS SELECT c.name, count(*) AS n, max(o.v) AS most FROM o JOIN c ON o.c = c.id "
    "GROUP BY c.name"
)


def test_the_progress_of_a_hydration_is_visible(
    gate: Gate, server: ServerThread, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hydration, "PROGRESS_S", 0.02)
    gate.opened.clear()
    with capture_logs() as logs:

        def logged(event: str) -> list[Any]:
            return [entry for entry in list(logs) if entry["event"] == event and entry.get("view") == "m"]

        db.execute(VIEW)
        until(lambda: one(db, STATUS)[4] == 2)  # both inputs are read, the join waits for Spark
        assert one(db, STATUS) == ("running", False, 5, 5, 2, 5)
        assert one(db, "SELECT hydrated, steps FROM mz_internal.mz_dataflows") == (False, 0)
        assert scrape(server.http_port)["tidewire_hydrations_running", ()] == 1
        between = until(
            lambda: [e for e in logged("hydration in progress") if (e["operators"], e["rows"]) == ("2/5", "5/5")]
        )
        assert not logged("hydration ended")
        gate.opened.set()
        assert sorted(db.execute("SELECT * FROM m").fetchall()) == [("a", 2, 7), ("b", 1, 1)]
    (end,) = logged("hydration ended")
    assert end["outcome"] == "ok"
    assert (end["operators"], end["rows"]) == ("5/5", "5/5")
    assert 0 < between[0]["seconds"] <= end["seconds"]
    assert one(db, STATUS) == ("hydrated", True, 5, 5, 5, 5)
    hydrations, ms, since = one(db, "SELECT hydrations, last_ms, since FROM mz_internal.mz_hydration_statuses")
    assert hydrations == 1
    assert 0 < ms <= end["seconds"] * 1e3 + 1
    assert since.timestamp() == pytest.approx(time.time(), abs=60)
    samples = scrape(server.http_port)
    assert samples["tidewire_hydrations_running", ()] == 0
    assert samples["tidewire_hydration_seconds_count", (("outcome", "ok"),)] == 1


def test_the_rows_of_a_table_count_for_each_operator_that_reads_them(server: ServerThread, db: Connection) -> None:
    db.execute("CREATE MATERIALIZED VIEW twice AS SELECT a.c, b.v FROM o a JOIN o b ON a.c = b.v")
    assert db.execute("SELECT * FROM twice ORDER BY c").fetchall() == [(1, 1), (1, 1)]
    assert one(db, STATUS)[2:4] == (6, 6)


def test_failed_and_canceled_hydrations_are_reported(gate: Gate, server: ServerThread, db: Connection) -> None:
    db.execute("INSERT INTO o VALUES (2, 0)")
    db.execute("CREATE MATERIALIZED VIEW fails AS SELECT c, 10 / v AS q FROM o")
    with pytest.raises(errors.DivisionByZero):
        db.execute("SELECT * FROM fails")
    assert one(db, STATUS)[:2] == ("failed", False)
    db.execute("DELETE FROM o WHERE v = 0")
    db.execute("SELECT * FROM fails")
    assert one(db, STATUS)[:2] == ("hydrated", True)
    gate.opened.clear()
    db.execute("DROP MATERIALIZED VIEW fails")
    db.execute(VIEW)
    until(lambda: one(db, STATUS)[4] == 2)
    db.execute("DROP MATERIALIZED VIEW m")
    ended = "tidewire_hydration_seconds_count"
    until(lambda: scrape(server.http_port)[ended, (("outcome", "canceled"),)] == 1)
    samples = scrape(server.http_port)
    assert samples[ended, (("outcome", "error"),)] == 1
    assert samples[ended, (("outcome", "ok"),)] == 1


def test_statistics_of_operators(server: ServerThread, db: Connection) -> None:
    db.execute(VIEW)
    db.execute("SELECT * FROM m")
    before = one(db, "SELECT steps FROM mz_internal.mz_dataflows")[0]
    db.execute("INSERT INTO o VALUES (1, 9), (2, 0)")
    assert sorted(db.execute("SELECT * FROM m").fetchall()) == [("a", 3, 9), ("b", 2, 1)]
    steps, last, mean, most, total = one(
        db, "SELECT steps, last_step_ms, mean_step_ms, max_step_ms, steps_ms FROM mz_internal.mz_dataflows"
    )
    assert steps == before + 1
    assert 0 < last <= most <= total
    assert mean == pytest.approx(total / steps)
    found = db.execute(
        "SELECT o.id, o.name, o.input_ids, o.hydration_rows, o.steps, o.last_rows_in, o.last_rows_out, o.statements "
        "FROM mz_internal.mz_dataflow_operators o JOIN mz_internal.mz_dataflows d ON d.id = o.dataflow_id "
        "JOIN mz_catalog.mz_materialized_views v ON v.id = d.object_id AND v.name = 'm' ORDER BY o.id"
    ).fetchall()
    assert [(row[0], row[2]) for row in found] == [(1, [2, 5]), (2, [3, 4]), (3, []), (4, []), (5, [2])]
    assert [row[1].split(",")[0].split(":")[0] for row in found] == [
        "Aggregate (accumulable)",
        "Join",
        "Changes of materialize.public.o",
        "Changes of materialize.public.c",
        "Distinct",
    ]
    assert [row[3] for row in found] == [2, 3, 3, 2, 3]
    assert {row[4] for row in found} == {steps}
    assert [row[5:7] for row in found] == [(4, 4), (2, 2), (0, 2), (0, 0), (2, 2)]
    assert [row[7] for row in found] == [1 + steps, 1 + steps, 0, 0, 0]
    times = "SELECT hydration_ms, last_step_ms, steps_ms, spark_ms FROM mz_internal.mz_dataflow_operators WHERE id = 1"
    hydrated, last, total, spark = one(db, times)
    assert 0 < last <= total
    assert 0 < spark <= hydrated + total
    (counted,) = one(db, "SELECT sum(count) FROM mz_internal.mz_dataflow_step_durations_histogram")
    assert counted == steps
    assert scrape(server.http_port)["tidewire_step_seconds_count", ()] == steps
    kept = db.execute(
        "SELECT a.sorted_by, a.rows, o.name LIKE 'Join%' FROM mz_internal.mz_arrangements a "
        "JOIN mz_internal.mz_dataflow_operators o ON o.dataflow_id = a.dataflow_id AND o.id = a.operator_id "
        "ORDER BY a.sorted_by"
    ).fetchall()
    assert [(by, is_join) for by, _, is_join in kept] == [
        ("c", True),
        ("id", True),
        ("name", False),
        ("name, v", False),
        ("name, v", False),
    ]
    assert [rows for _, rows, _ in kept][:2] == [5, 2]


def test_shared_arrangements_have_one_id(db: Connection) -> None:
    db.execute(VIEW)
    db.execute("CREATE MATERIALIZED VIEW other AS SELECT o.c, c.name, o.v FROM o JOIN c ON o.c = c.id WHERE v > 3")
    for name in ("m", "other"):
        db.execute(f"SELECT * FROM {name}".encode())
    shared = "SELECT sorted_by FROM mz_internal.mz_arrangements GROUP BY id, sorted_by HAVING count(*) = 2"
    assert ("id",) in db.execute(shared.encode()).fetchall()


def test_a_recomputed_dataflow_has_progress_and_no_operators(db: Connection) -> None:
    with psycopg.connect(db.info.dsn) as other:
        other.execute("DECLARE s CURSOR FOR SUBSCRIBE (SELECT o.name FROM mz_catalog.mz_objects o JOIN c ON c.id = 1)")
        other.execute("FETCH 1 s WITH (TIMEOUT '60s')")
        state, hydrated, read, there, *operators = one(db, STATUS)
        assert (state, hydrated, operators) == ("hydrated", True, [1, 1])
        assert read > there == 2  # the number of rows of system tables is not known in advance
        assert one(db, "SELECT count(*) FROM mz_internal.mz_dataflow_operators") == (0,)


def test_a_failed_step_is_not_counted(db: Connection) -> None:
    operators = "SELECT steps, last_rows_out, rows_out FROM mz_internal.mz_dataflow_operators WHERE id = 2"
    db.execute("CREATE MATERIALIZED VIEW fails AS SELECT c, 10 / v AS q FROM o")
    db.execute("SELECT * FROM fails")
    db.execute("INSERT INTO o VALUES (3, 0), (3, 1)")
    with pytest.raises(errors.DivisionByZero):
        db.execute("SELECT * FROM fails")
    assert one(db, operators) == (0, None, 0)
    db.execute("DELETE FROM o WHERE v = 0")
    assert len(db.execute("SELECT * FROM fails").fetchall()) == 4
    assert one(db, operators) == (1, 1, 1)
