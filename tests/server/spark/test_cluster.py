"""A server whose Spark executors or Spark Connect server are other processes.

Clients see the same results as with the embedded engine, also while an executor or the Connect server is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from server.spark.installation import spark_home
from tests.fix_connect import ConnectServer
from tests.fix_server import ServerProcess
from tests.fix_spark import processes_naming

DEADLINE_S = 90
EXECUTOR = b"CoarseGrainedExecutorBackend"
ENDLESS = "SELECT sum(a.g * b.g) FROM generate_series(1, 3000000) a (g), generate_series(1, 3000000) b (g)"


@pytest.fixture
def served(tmp_path: Path, engine_flags: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server on the chosen engine, in its own working directory. Neither leaves files or processes behind."""
    there = tmp_path / "cwd"
    there.mkdir()
    monkeypatch.chdir(there)
    server = ServerProcess(tmp_path / "data", "--timestamp-interval", "50ms", *engine_flags)
    yield server
    assert server.stop() == 0
    assert list(there.iterdir()) == []
    assert not (tmp_path / "data" / "spark-run").exists()
    assert processes_naming(tmp_path / "data") == []
    assert not (spark_home() / "work").exists()


def connect(dsn: str) -> psycopg.Connection:
    return psycopg.connect(dsn, autocommit=True)


class Follower(threading.Thread):
    """Accumulates the updates of a subscription in the order of their arrival."""

    def __init__(self, dsn: str, query: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._query = query
        self.rows: Counter[tuple[object, ...]] = Counter()
        self.times: list[int] = []
        self.failure: BaseException | None = None
        self._moved = threading.Condition()

    def run(self) -> None:
        try:
            with connect(self._dsn) as connection:
                for time_, progressed, diff, *row in connection.cursor().stream(f"{self._query} WITH (PROGRESS)"):
                    with self._moved:
                        if not progressed:
                            self.rows[tuple(row)] += diff
                        self.times.append(int(time_))
                        self._moved.notify_all()
        except psycopg.Error as error:
            with self._moved:
                self.failure = error
                self._moved.notify_all()

    def until(self, rows: dict[tuple[object, ...], int]) -> None:
        """Waits until the accumulated rows are exactly these, each with its multiplicity."""
        with self._moved:
            assert self._moved.wait_for(lambda: self.failure or +self.rows == Counter(rows), DEADLINE_S), self.rows
            assert self.failure is None, self.failure
            assert -self.rows == Counter()
            assert self.times == sorted(self.times)


def executors(driver: int) -> list[int]:
    """Returns the executors in the session of the process `driver`, which is the session leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == driver and EXECUTOR in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # the process has just ended
                continue
    return found


@pytest.mark.cluster("local-cluster", "connect")
def test_a_typical_session(served: ServerProcess) -> None:
    with connect(served.dsn) as connection:
        connection.execute("CREATE TABLE orders (customer int, cents int)")
        connection.execute("CREATE TABLE customers (id int, name text)")
        connection.execute(
            "CREATE MATERIALIZED VIEW spent AS SELECT c.name, count(*) AS orders, sum(o.cents) AS cents "
            "FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.name"
        )
        connection.execute("INSERT INTO customers VALUES (1, 'ann'), (2, 'bob')")
        connection.execute("INSERT INTO orders VALUES (1, 100), (1, 50), (2, 7)")
        rows = connection.execute("SELECT * FROM spent ORDER BY name").fetchall()
        assert rows == [("ann", 2, 150), ("bob", 1, 7)]
        padded = connection.execute("SELECT lpad(name, 5, '.'), md5(name) FROM customers ORDER BY id").fetchall()
        assert padded == [
            ("..ann", "7e0d7f8a5d96c24ffcc840f31bce72b2"),
            ("..bob", "9f9d51bc70ef21ca5c14f307980a29d8"),
        ]
        follower = Follower(served.dsn, "SUBSCRIBE spent")
        follower.start()
        follower.until({("ann", 2, 150): 1, ("bob", 1, 7): 1})
        connection.execute("INSERT INTO orders VALUES (2, 3)")
        connection.execute("DELETE FROM orders WHERE customer = 1")
        follower.until({("bob", 2, 10): 1})
        threading.Timer(1.0, connection.cancel_safe).start()
        begun = time.monotonic()
        with pytest.raises(errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert time.monotonic() - begun < 30
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT 1 / (cents - 3) FROM orders")
        assert connection.execute("SELECT count(*) FROM generate_series(1, 100000)").fetchone() == (100_000,)


@pytest.mark.cluster("local-cluster")
def test_a_subscriber_receives_all_updates_although_executors_are_killed(served: ServerProcess) -> None:
    driver = int(served.await_event("Spark ready")["pid"])
    with connect(served.dsn) as connection:
        connection.execute("CREATE TABLE t (k int, v int)")
        follower = Follower(served.dsn, "SUBSCRIBE (SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k)")
        follower.start()
        sums: Counter[int] = Counter()
        counts: Counter[int] = Counter()
        for number in range(1, 7):
            if number % 2 == 0:
                deadline = time.monotonic() + DEADLINE_S
                while not (alive := executors(driver)):
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                for pid in alive if number == 4 else alive[:1]:  # first one of them, then all
                    os.kill(pid, signal.SIGKILL)
            connection.execute("INSERT INTO t SELECT g %% 3, %s FROM generate_series(1, 9) g (g)", (number,))
            for k in range(3):
                sums[k] += 3 * number
                counts[k] += 3
        follower.until({(k, counts[k], sums[k]): 1 for k in range(3)})
        assert connection.execute("SELECT count(*), sum(v) FROM t").fetchone() == (54, 9 * 21)


@pytest.mark.cluster("connect")
def test_a_connect_server_can_be_killed_and_restarted(tmp_path: Path) -> None:
    """Statements get an error while Spark is down. A subscription and a view wait and receive all updates."""
    spark = ConnectServer(tmp_path / "connect")
    try:
        server = ServerProcess(tmp_path / "data", "--timestamp-interval", "50ms", "--spark-remote", spark.url)
        try:
            with connect(server.dsn) as connection:
                connection.execute("CREATE TABLE t (a int)")
                connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
                follower = Follower(server.dsn, "SUBSCRIBE (SELECT sum(a) AS s, count(*) AS n FROM t)")
                follower.start()
                follower.until({(None, 0): 1})
                spark.kill()
                for number in (1, 2, 3):
                    connection.execute("INSERT INTO t VALUES (%s)", (number,))
                with pytest.raises(errors.CannotConnectNow) as refused:
                    connection.execute("SELECT sum(a) FROM t")
                assert "cannot be reached" in (refused.value.diag.message_detail or "")
                assert follower.failure is None
                spark.start()
                follower.until({(6, 3): 1})
                assert connection.execute("SELECT n FROM v").fetchone() == (3,)
                connection.execute("INSERT INTO t VALUES (4)")
                follower.until({(10, 4): 1})
                assert connection.execute("SELECT sum(a) FROM t").fetchone() == (10,)
        finally:
            assert server.stop() == 0
    finally:
        spark.stop()
