"""Arrangements in files, probed by Spark's executors, on each kind of engine and after the loss of Spark or of the
server.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_connect import ConnectServer
from tests.fix_server import ServerProcess, ServerThread
from tests.server.spark.test_cluster import DEADLINE_S, connect, executors

QUERY = (
    "SELECT c.region, count(*) AS orders, sum(o.cents) AS cents, max(o.cents) AS largest "
    "FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region"
)
FIRST = "SELECT id, cents FROM orders ORDER BY cents DESC, id LIMIT 5"


@pytest.fixture
def spark(engine_name: str, tmp_path: Path) -> Iterator[ConnectServer | None]:
    """A Spark Connect server for this test only, so that the test can kill it. None on other engines."""
    server = ConnectServer(tmp_path / "connect") if engine_name == "connect" else None
    yield server
    if server is not None:
        server.stop()


def started(tmp_path: Path, spark: ConnectServer | None, engine_flags: list[str]) -> ServerProcess:
    flags = ["--timestamp-interval", "50ms", "--arrangement-directory", str(tmp_path / "shared")]
    flags += engine_flags if spark is None else ["--spark-remote", spark.url]
    return ServerProcess(tmp_path / "data", *flags)


def check(connection: psycopg.Connection) -> None:
    """Compares the views with their queries, which are run by Spark without a dataflow."""
    for view, query in (("totals", QUERY), ("firsts", FIRST)):
        expected = connection.execute(query.encode()).fetchall()
        assert sorted(connection.execute(f"SELECT * FROM {view}".encode()).fetchall()) == sorted(expected)


def change(connection: psycopg.Connection, number: int) -> None:
    connection.execute("UPDATE customers SET region = 'r' || ((id + %s) %% 7) WHERE id %% 31 = %s", (number, number))
    connection.execute("DELETE FROM orders WHERE id %% 53 = %s", (number,))
    connection.execute(
        "INSERT INTO orders SELECT 10000 * %s + g, g %% 500, (g * 7919) %% 1000 FROM generate_series(1, 20) g (g)",
        (number,),
    )


def patiently(act: Callable[..., None], *args: Any) -> None:
    """Retries while the server answers 57P03, because the engine is being restarted."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return act(*args)
        except errors.CannotConnectNow:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def lose_spark(server: ServerProcess, spark: ConnectServer | None, engine_name: str) -> None:
    """Kills the Connect server, the driver or the executors. They are started again."""
    if spark is not None:
        spark.kill()
        spark.start()  # statements are refused until the engine's next attempt to connect
        return
    driver = int(server.await_event("Spark ready")["pid"])
    if engine_name == "embedded":
        os.kill(driver, signal.SIGKILL)
        return
    deadline = time.monotonic() + DEADLINE_S
    while not (alive := executors(driver)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.ivm
@pytest.mark.timeout(900)
@pytest.mark.cluster("embedded", "local-cluster", "connect")
def test_a_join_and_an_aggregate_survive_the_loss_of_spark_and_of_the_server(
    tmp_path: Path, spark: ConnectServer | None, engine_flags: list[str], engine_name: str
) -> None:
    server = started(tmp_path, spark, engine_flags)
    try:
        with connect(server.dsn) as connection:
            connection.execute("ALTER SYSTEM SET arrangement_probing = 'executors'")
            connection.execute("CREATE TABLE orders (id int, customer int, cents int)")
            connection.execute("CREATE TABLE customers (id int, region text)")
            connection.execute("INSERT INTO customers SELECT g, 'r' || (g %% 7) FROM generate_series(0, 499) g (g)", ())
            connection.execute(
                "INSERT INTO orders SELECT g, g %% 500, (g * 31) %% 1000 FROM generate_series(1, 5000) g (g)", ()
            )
            connection.execute(f"CREATE MATERIALIZED VIEW totals AS {QUERY}".encode())
            connection.execute(f"CREATE MATERIALIZED VIEW firsts AS {FIRST}".encode())
            check(connection)
            explained = connection.execute(f"EXPLAIN {QUERY}".encode()).fetchall()
            assert explained[-1] == ("Arrangements: in files, probed by Spark's executors",)
            kept = connection.execute("SELECT probed_by, rows > 0 FROM mz_internal.mz_arrangements").fetchall()
            assert set(kept) == {("executors", True)}
            for number in (1, 2):
                change(connection, number)
                check(connection)
            lose_spark(server, spark, engine_name)
            for number in (3, 4):
                patiently(change, connection, number)
            patiently(check, connection)
        server.kill()
        (left,) = (tmp_path / "shared").iterdir()
        files = set(left.rglob("*.arrow"))
        assert files
        server = started(tmp_path, spark, engine_flags)
        with connect(server.dsn) as connection:
            check(connection)
            change(connection, 5)
            check(connection)
        assert list((tmp_path / "shared").iterdir()) == [left]
        assert files.isdisjoint(left.rglob("*.arrow"))
    finally:
        if server.process.poll() is None:
            assert server.stop() == 0
    assert list((tmp_path / "shared").iterdir()) == []


class Items:
    """A table with two indexes, a view of it with an index, and the rows that they must contain."""

    def __init__(self) -> None:
        self.rows = {g: (f"Name {g % 400}", g * 31 % 1000) for g in range(5000)}

    def make(self, connection: psycopg.Connection) -> None:
        for sql in (
            "CREATE TABLE items (id int, name text, cents int)",
            "INSERT INTO items SELECT g, 'Name ' || (g % 400), (g * 31) % 1000 FROM generate_series(0, 4999) g (g)",
            "CREATE INDEX by_id ON items (id)",
            "CREATE INDEX by_lower ON items (lower(name))",
            "CREATE VIEW sums AS SELECT name, sum(cents) AS cents, count(*) AS count FROM items GROUP BY name",
            "CREATE INDEX by_name ON sums (name)",
        ):
            connection.execute(sql.encode())

    def change(self, connection: psycopg.Connection, number: int) -> None:
        ids = list(range(number, 5000, 61))
        connection.execute("UPDATE items SET cents = cents + 1, name = 'New' WHERE id = ANY (%s)", (ids,))
        self.rows |= {id: ("New", self.rows[id][1] + 1) for id in ids if id in self.rows}
        gone = list(range(number, 5000, 67))
        connection.execute("DELETE FROM items WHERE id = ANY (%s)", (gone,))
        for id in gone:
            self.rows.pop(id, None)
        connection.execute("DELETE FROM items WHERE lower(name) = %s", (f"name {number}",))
        self.rows = {id: row for id, row in self.rows.items() if row[0] != f"Name {number}"}

    def check(self, connection: psycopg.Connection) -> None:
        await_found(connection, {"by_id", "by_lower", "by_name"})
        ids = [*range(0, 6000, 7), -1]
        by_id = connection.execute("SELECT id, name, cents FROM items WHERE id = ANY (%s)", (ids,)).fetchall()
        assert sorted(by_id) == sorted((id, *self.rows[id]) for id in ids if id in self.rows)
        for name in ("Name 7", "Name 9", "New", "Name 400"):
            found = sorted(cents for n, cents in self.rows.values() if n == name)
            by_lower = connection.execute("SELECT cents FROM items WHERE lower(name) = lower(%s)", (name,)).fetchall()
            assert sorted(by_lower) == [(cents,) for cents in found]
            by_name = connection.execute("SELECT cents, count FROM sums WHERE name = %s", (name,)).fetchall()
            assert by_name == ([(sum(found), len(found))] if found else [])


def await_found(connection: psycopg.Connection, indexes: set[str]) -> None:
    """Waits until executors can probe these indexes. There is no message for this, so it polls."""
    deadline = time.monotonic() + DEADLINE_S
    sql = (
        "SELECT o.name, bool_and(a.probed_by = 'executors' AND f.hydrated) FROM mz_internal.mz_arrangements a "
        "JOIN mz_objects o ON o.id = a.dataflow_id JOIN mz_internal.mz_dataflows f ON f.object_id = o.id "
        "GROUP BY o.name"
    )
    while {name for name, there in connection.execute(sql).fetchall() if there} & indexes != indexes:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.ivm
@pytest.mark.timeout(900)
@pytest.mark.cluster("embedded", "local-cluster", "connect")
def test_executors_look_up_rows_in_indexes_in_files(
    tmp_path: Path, spark: ConnectServer | None, engine_flags: list[str]
) -> None:
    items = Items()
    server = started(tmp_path, spark, engine_flags)
    try:
        with connect(server.dsn) as connection, connect(server.dsn) as other:
            connection.execute("ALTER SYSTEM SET arrangement_probing = 'executors'")
            items.make(connection)
            items.check(connection)
            for query in ("items WHERE id = 1", "items WHERE lower(name) = 'a'", "sums WHERE name = 'a'"):
                explained = connection.execute(f"EXPLAIN SELECT * FROM {query}".encode()).fetchall()
                assert any("Index lookup" in line for (line,) in explained)
            with other.transaction():
                before = other.execute("SELECT * FROM items WHERE id = ANY ('{1,2,3,62}')").fetchall()
                items.change(connection, 1)
                assert other.execute("SELECT * FROM items WHERE id = ANY ('{1,2,3,62}')").fetchall() == before
            items.check(connection)
        server.kill()
        server = started(tmp_path, spark, engine_flags)
        with connect(server.dsn) as connection:
            items.check(connection)
            items.change(connection, 2)
            items.check(connection)
    finally:
        if server.process.poll() is None:
            assert server.stop() == 0
    assert list((tmp_path / "shared").iterdir()) == []


def test_probing_by_executors_needs_an_arrangement_directory(server: ServerThread) -> None:
    with connect(server.dsn()) as connection:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no directory") as refused:
            connection.execute("ALTER SYSTEM SET arrangement_probing = 'executors'")
        assert "--arrangement-directory" in (refused.value.diag.message_hint or "")
        with pytest.raises(errors.InvalidParameterValue):
            connection.execute("ALTER SYSTEM SET arrangement_probing = 'clients'")
        assert connection.execute("SHOW arrangement_probing").fetchone() == ("auto",)


@pytest.mark.slow
def test_an_unusable_arrangement_directory_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AssertionError, match="could not use the arrangement directory"):
        ServerProcess(tmp_path / "data", "--arrangement-directory", str(tmp_path / "file"))
