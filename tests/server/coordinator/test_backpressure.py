"""Writers wait for a lagging dataflow, for a bounded time. Dropped and failed dataflows delay no writer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from catalog.ids import ObjectId, Timestamp
from server.coordinator.backpressure import Backpressure
from server.runtime.metrics import Metrics
from tests.fix_server import ServerThread
from tests.polling import HANG_S, until
from tests.server.coordinator.test_dataflows import Connection, connected, follow, rows
from tests.server.slow_engine import PassingEngine, SlowEngine

LAGS = "SELECT commits, bytes, holds_writers FROM mz_internal.mz_dataflow_lags"
WIDE = "x" * 20_000
MANY = 300  # more commits than fit between two checks of the lag
SLOW = "SELECT s FROM {} WHERE s <> 'slow'"


@pytest.fixture
def slow() -> Iterator[SlowEngine]:
    slow = SlowEngine(PassingEngine(), "'slow'")
    yield slow
    slow.open()


@pytest.fixture
def server(slow: SlowEngine, tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path, slow)
    with connected(server.dsn()) as connection:
        connection.execute("ALTER SYSTEM SET dataflow_lag_bytes_max = 200000")
        connection.execute("ALTER SYSTEM SET dataflow_lag_delay_max = '60s'")
        connection.execute("CREATE TABLE t (s text)")
        connection.execute("CREATE TABLE other (s text)")
    yield server
    server.stop()


class Writer(threading.Thread):
    """Inserts `count` rows, each in its own commit."""

    def __init__(self, dsn: str, count: int) -> None:
        super().__init__()
        self._dsn = dsn
        self._count = count
        self.written = 0
        self.start()

    def run(self) -> None:
        with connected(self._dsn) as connection:
            for _ in range(self._count):
                connection.execute("INSERT INTO t VALUES (%s)", (WIDE,))
                self.written += 1


def holding(connection: Connection) -> int:
    """Returns the number of dataflows that delay writers."""
    return sum(row[2] for row in connection.execute(LAGS).fetchall())


@pytest.mark.parametrize("chained", [False, True], ids=["", "over another view"])
@pytest.mark.slow
def test_writers_wait_for_a_lagging_dataflow(server: ServerThread, slow: SlowEngine, chained: bool) -> None:
    with connected(server.dsn()) as connection:
        if chained:
            connection.execute("CREATE MATERIALIZED VIEW first AS SELECT s FROM t")
        connection.execute(f"CREATE MATERIALIZED VIEW m AS {SLOW.format('first' if chained else 't')}".encode())
        assert rows(connection, "SELECT * FROM m") == []
        with slow.shut_gate():
            writer = Writer(server.dsn(), MANY)
            until(lambda: holding(connection))
            with connected(server.dsn()) as other:
                other.execute("SET statement_timeout = '300ms'")
                with pytest.raises(errors.QueryCanceled, match="statement timeout"):
                    other.execute("INSERT INTO t VALUES ('timeout')")
                with pytest.raises(errors.QueryCanceled, match="statement timeout"):
                    other.execute("UPDATE t SET s = 'timeout'")
                with pytest.raises(errors.QueryCanceled, match="statement timeout"):
                    other.execute("TRUNCATE t")
                with pytest.raises(errors.QueryCanceled, match="statement timeout"):
                    with other.cursor().copy("COPY t FROM STDIN") as copy:
                        copy.write("timeout\n")
                other.execute("RESET statement_timeout")
                other.execute("INSERT INTO other VALUES ('a')")  # no lagging dataflow reads it
                other.execute("BEGIN")
                other.execute("INSERT INTO t VALUES ('canceled')")
                threading.Timer(0.3, other.cancel_safe).start()
                with pytest.raises(errors.QueryCanceled, match="user request"):
                    other.execute("COMMIT")
                assert {len(s) for (s,) in rows(other, "SELECT * FROM t")} == {20_000}
            assert 5 <= writer.written < MANY, writer.written
        writer.join(HANG_S)
        assert writer.written == MANY
        assert rows(connection, "SELECT * FROM m") == [(WIDE,)] * MANY
        until(lambda: not holding(connection))  # the next check of the lag
        value = server.app.coordinator.metrics.registry.get_sample_value
        assert (value("tidewire_writes_throttled_total") or 0) >= 6
        assert (value("tidewire_throttled_seconds_total") or 0) > 1


def test_a_write_waits_at_most_dataflow_lag_delay_max(server: ServerThread, slow: SlowEngine) -> None:
    """The bound also applies if the dataflow makes no progress at all, for example because Spark is down."""
    with connected(server.dsn()) as connection:
        connection.execute(f"CREATE MATERIALIZED VIEW m AS {SLOW.format('t')}".encode())
        assert rows(connection, "SELECT * FROM m") == []
        connection.execute("ALTER SYSTEM SET dataflow_lag_delay_max = '300ms'")
        with slow.shut_gate():
            Writer(server.dsn(), 12).join(HANG_S)
            until(lambda: holding(connection))
            begun = time.monotonic()
            Writer(server.dsn(), 3).join(HANG_S)
            assert 0.8 < time.monotonic() - begun < 30
            connection.execute("ALTER SYSTEM SET dataflow_lag_bytes_max = 0")
            until(lambda: not holding(connection))
            Writer(server.dsn(), 3).join(HANG_S)
        assert len(rows(connection, "SELECT * FROM m")) == 18


@pytest.mark.slow
def test_dropped_dataflows_delay_no_writer(server: ServerThread, slow: SlowEngine) -> None:
    with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as subscriber:
        connection.execute(f"CREATE MATERIALIZED VIEW m AS {SLOW.format('t')}".encode())
        follow(subscriber, f"({SLOW.format('t')} AND s <> '')")
        assert rows(connection, "SELECT * FROM m") == []
        with slow.shut_gate():
            writer = Writer(server.dsn(), MANY)
            until(lambda: holding(connection) == 2)
            connection.execute("DROP MATERIALIZED VIEW m")
            until(lambda: holding(connection) == 1)
            subscriber.rollback()
            writer.join(HANG_S)
            assert writer.written == MANY


def test_a_failing_view_delays_no_writer_and_releases_history(server: ServerThread) -> None:
    with connected(server.dsn()) as connection, psycopg.connect(server.dsn()) as subscriber:
        connection.execute("CREATE TABLE n (v int)")
        connection.execute("INSERT INTO n VALUES (1), (0)")
        ((id,),) = rows(connection, "SELECT id FROM mz_tables WHERE name = 'n'")
        connection.execute("CREATE MATERIALIZED VIEW fails AS SELECT 10 / v AS q FROM n")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT * FROM fails")
        connection.execute("TRUNCATE n")
        connection.execute("INSERT INTO n VALUES (1)")
        assert rows(connection, "SELECT * FROM fails") == [(1,)]
        connection.execute("INSERT INTO n VALUES (0)")
        for _ in range(60):
            connection.execute("INSERT INTO n VALUES (5)")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT * FROM fails")
        assert not holding(connection)
        coordinator = server.app.coordinator
        now = coordinator.latest_time()
        until(lambda: coordinator.frontiers.since(id) > now)
        connection.execute("TRUNCATE n")
        connection.execute("INSERT INTO n VALUES (7), (7)")
        assert rows(connection, "SELECT * FROM fails") == [(7,), (7,)]
        follow(subscriber, "fails")
        connection.execute("INSERT INTO n VALUES (8)")
        (row,) = subscriber.execute("FETCH 1 s WITH (TIMEOUT '30s')").fetchall()
        while row[1]:
            (row,) = subscriber.execute("FETCH 1 s WITH (TIMEOUT '30s')").fetchall()
        assert row[2:] == (1, 8)


class Flow:
    """A dataflow that has processed the times before `next_time`."""

    inputs = frozenset({ObjectId("u1")})
    can_catch_up = True

    def __init__(self, *, is_resting: bool) -> None:
        self.next_time = Timestamp(5)
        self.is_resting = is_resting


def test_lags_are_measured_after_writes_and_while_writers_wait() -> None:
    backpressure, awake, resting = Backpressure(Metrics()), Flow(is_resting=False), Flow(is_resting=True)
    flows = {"awake": awake, "resting": resting}
    backpressure.track(awake)

    def measure() -> frozenset[str]:
        backpressure.measure(flows, {}, 10_000, 1.0)
        return backpressure.lagging

    def write(time: int, size: int) -> None:
        batch: Any = SimpleNamespace(collection=ObjectId("u1"), time=Timestamp(time), bytes=size)
        backpressure.written([(batch, payload)])

    payload: Any = None
    assert backpressure.may_have_changed
    assert measure() == set()
    assert not backpressure.may_have_changed
    write(6, 10)
    assert backpressure.may_have_changed
    assert measure() == set()
    write(7, 20_000)
    assert measure() == {"awake"}, "a dataflow at rest has taken all changes"
    assert backpressure.may_have_changed, "the lag decreases without a write"
    awake.next_time = Timestamp(8)
    assert measure() == set()
    assert not backpressure.may_have_changed
