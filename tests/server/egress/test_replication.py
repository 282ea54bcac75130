"""A second server follows a table of the first through a file, with the same timestamps."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tidewire
from catalog.objects.relations import Collection
from catalog.objects.sources import Source
from catalog.objects.views import MaterializedView
from server.coordinator import upstream_times
from tests.fix_server import ServerThread
from tests.kafka.active_active import Server as Process
from tests.server.slow_engine import PassingEngine
from tidewire import aio

INTERVAL_S = 0.02
SOURCE = """
    CREATE SOURCE t (n bigint NOT NULL, v text) FROM FILE '{path}' (POLL INTERVAL '10ms', TIMESTAMPS 'upstream')
        FORMAT {format} ENVELOPE MATERIALIZE WITH (RETAIN HISTORY FOR '1 hour')
"""
Row = tuple[Any, ...]


class Server:
    """A server without Spark that can be restarted, with a session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._start()

    def _start(self) -> None:
        self._server = ServerThread(self._directory, PassingEngine(), interval_s=INTERVAL_S)
        self.port = self._server.port
        self.coordinator = self._server.app.coordinator
        self.connection = psycopg.connect(self._server.dsn(), autocommit=True)

    def execute(self, statement: str) -> list[Row]:
        cursor = self.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []

    def stop(self) -> None:
        self.connection.close()
        self._server.stop()

    def restart(self) -> None:
        self.stop()
        self._start()

    def subscribed(self, relation: str, as_of: int, up_to: int) -> list[Row]:
        """The rows of a subscription that ends."""
        with self.connection.cursor() as cursor:
            copy = f"COPY (SUBSCRIBE {relation} AS OF {as_of} UP TO {up_to}) TO STDOUT"
            with cursor.copy(copy.encode()) as rows:
                return sorted(rows.rows())

    def frontiers(self, kind: type[Collection]) -> tuple[int, int]:
        """`since` and `upper` of the only collection of this kind."""
        (item,) = self.coordinator.state.items_of(kind)
        return self.coordinator.frontiers.since(item.id), self.coordinator.frontiers.upper(item.id)

    @property
    def frontier(self) -> int:
        """`upper` of the source."""
        return self.frontiers(Source)[1]


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "first")
    server.execute("CREATE TABLE t (n bigint NOT NULL, v text) WITH (RETAIN HISTORY FOR '1 hour')")
    yield server
    server.stop()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "second")
    yield server
    server.stop()


def format_of(path: Path) -> str:
    return "AVRO" if path.suffix == ".avro" else "JSON"


def follow_into(server: Server, path: Path) -> None:
    """Creates a sink of the table into a file, and waits for the file."""
    into = f"INTO FILE '{path}' FORMAT {format_of(path)} ENVELOPE MATERIALIZE WITH (PROGRESS INTERVAL '20ms')"
    server.execute(f"CREATE SINK s FROM t {into}")
    while not path.exists():
        time.sleep(0.01)


def change(server: Server, choice: random.Random) -> None:
    """A random commit: rows are inserted, updated or deleted. There may be copies of rows."""
    n = choice.randrange(1, 6)
    match choice.randrange(4):
        case 0:
            server.execute(f"DELETE FROM t WHERE n = {n}")
        case 1:
            server.execute(f"UPDATE t SET v = 'updated' WHERE n = {n}")
        case _:
            server.execute(f"INSERT INTO t VALUES ({n}, 'a'), ({n}, NULL), ({n}, 'a')")


def latest(server: Server) -> int:
    """A time up to which everything that was committed can be read."""
    return int(server.execute("SELECT mz_now()")[0][0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["changes.json", "changes.avro"])
def test_both_servers_have_the_same_rows_at_the_same_times(
    first: Server, second: Server, tmp_path: Path, seed: int, name: str
) -> None:
    choice = random.Random(seed)
    path = tmp_path / name
    for _ in range(5):
        change(first, choice)
    follow_into(first, path)
    begin = latest(first)
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    second.execute("CREATE MATERIALIZED VIEW w WITH (RETAIN HISTORY FOR '1 hour') AS SELECT n, v FROM t")
    for step in range(20):
        change(first, choice)
        if step == 10:
            second.restart()
        if step == 15:
            first.restart()
    end = latest(first)
    times = [row[0] for row in first.subscribed("t", begin, end + 1)]
    assert len(set(times)) > 5
    for as_of in (begin, int(choice.choice(times)), end):
        expected = first.subscribed("t", as_of, end + 1)
        assert second.subscribed("t", as_of, end + 1) == expected
        rows = f"SELECT * FROM t AS OF {as_of}"
        assert Counter(second.execute(rows)) == Counter(first.execute(rows))
    since, _ = second.frontiers(MaterializedView)
    assert second.subscribed("w", since, end + 1) == first.subscribed("t", since, end + 1)


@pytest.mark.parametrize("times_max", [upstream_times.TIMES_MAX, 7])
def test_the_history_is_that_of_the_data_also_if_it_closes_at_once(
    second: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times_max: int
) -> None:
    monkeypatch.setattr(upstream_times, "TIMES_MAX", times_max)
    path = tmp_path / "changes.json"
    times = range(1, 200)
    lines: list[Any] = [{"array": [{"data": {"n": t, "v": "x"}, "time": t, "diff": 1}]} for t in times]
    lines += [{"array": [{"data": {"n": t, "v": "x"}, "time": t + 7, "diff": -1}]} for t in times]
    counts = [{"time": t, "count": (t in times) + (t - 7 in times)} for t in range(1, 207)]
    lines.append({"com.materialize.cdc.progress": {"lower": [0], "upper": [300], "counts": counts}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    while second.frontier < 300:
        time.sleep(0.01)
    with pytest.raises(psycopg.Error, match="could not find a valid timestamp"):
        second.execute("SELECT * FROM t AS OF 0")
    for t in (1, 6, 100, 199, 203, 206, 299):
        expected = sum(1 for u in times if u <= t < u + 7)
        assert len(second.execute(f"SELECT * FROM t AS OF {t}")) == expected
    rows = second.subscribed("t", 1, 250)
    assert len(rows) == 2 * len(times)
    assert {int(row[0]) for row in rows} == set(range(1, 207))
    assert second.execute("SELECT * FROM t") == []  # the latest time that is closed
    second.restart()
    assert second.subscribed("t", 1, 250) == rows


def test_an_ended_history_has_the_frontier_of_the_tables(second: Server, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    update = {"array": [{"data": {"n": 1, "v": "x"}, "time": 5, "diff": 1}]}
    end = {"com.materialize.cdc.progress": {"lower": [0], "upper": [], "counts": [{"time": 5, "count": 1}]}}
    path.write_text(json.dumps(update) + "\n" + json.dumps(end) + "\n")
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    second.execute("CREATE TABLE other (n bigint)")
    second.execute("INSERT INTO other VALUES (7)")
    for _ in range(2):
        while second.frontier < 1_000:
            time.sleep(0.01)
        assert second.execute("SELECT * FROM t") == [(1, "x")]
        now = latest(second)
        assert second.subscribed("t", now, now + 1) == [(str(now), "1", "1", "x")]
        second.restart()


def test_the_timestamps_of_the_server_follow_those_of_a_source(
    second: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a server that was killed are up to 10 s ahead of its clock after a restart."""
    path = tmp_path / "changes.json"
    second.execute("CREATE TABLE own (n bigint)")
    soon = time.time_ns() // 1_000_000 + 20_000
    update = {"array": [{"data": {"n": 1, "v": "x"}, "time": soon, "diff": 1}]}
    closed = {"lower": [0], "upper": [soon + 1], "counts": [{"time": soon, "count": 1}]}
    path.write_text(json.dumps(update) + "\n" + json.dumps({"com.materialize.cdc.progress": closed}) + "\n")
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    assert second.subscribed("t", soon, soon + 1) == [(str(soon), "1", "1", "x")]
    assert time.time_ns() // 1_000_000 < soon
    second.execute("INSERT INTO own VALUES (7)")
    assert latest(second) > soon
    second.restart()
    assert latest(second) > soon
    monkeypatch.setattr(upstream_times, "AHEAD_MS_MAX", 1_000)
    far = soon + 100_000
    with path.open("a") as file:
        closed = {"lower": [soon + 1], "upper": [far], "counts": []}
        file.write(json.dumps({"com.materialize.cdc.progress": closed}) + "\n")
    query = "SELECT error FROM mz_internal.mz_source_statuses WHERE status = 'stalled'"
    while not (found := second.execute(query)):
        time.sleep(0.01)
    assert "s ahead of the server's clock" in found[0][0]
    assert second.frontier == soon + 1


def test_the_option_needs_a_history_of_its_own(second: Server, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("")
    for rest, message in (
        ("(TIMESTAMPS 'upstream') FORMAT TEXT", "option TIMESTAMPS = 'upstream' requires ENVELOPE MATERIALIZE"),
        ("(TIMESTAMPS 'yes') FORMAT TEXT", 'invalid value for option TIMESTAMPS: "yes"'),
    ):
        with pytest.raises(psycopg.Error, match=message):
            second.execute(f"CREATE SOURCE s FROM FILE '{path}' {rest}")


def test_a_client_continues_on_the_other_server(first: Server, second: Server, tmp_path: Path) -> None:
    """The client loses the first server, whose last commits may not be in the file. The second continues with them."""
    path = tmp_path / "changes.json"
    follow_into(first, path)
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    while second.frontier == 0:
        time.sleep(0.01)
    dsn = f"host=127.0.0.1,127.0.0.1 port={second.port},{first.port} user=materialize dbname=materialize"
    choice = random.Random(0)
    rows: dict[Row, int] = {}
    last = 0
    with closing(tidewire.subscribe(dsn, "t")) as batches:
        for number, batch in enumerate(batches):
            assert batch.progress > last
            last = batch.progress
            for row, diff in [] if isinstance(batch, tidewire.Progress) else batch.changes:
                rows[row] = rows.get(row, 0) + diff
            if number == 10:
                second.stop()
                lost = time.monotonic()
            if number == 11:
                assert time.monotonic() - lost < 5
            if number < 40:
                change(first, choice)
                end = latest(first)
            elif batch.progress > end:
                break
    expected: dict[Row, int] = {}
    for row in first.execute("SELECT n, v FROM t"):
        expected[row] = expected.get(row, 0) + 1
    assert {row: count for row, count in rows.items() if count} == expected


def test_a_source_that_lags_is_held_indexed_and_read_with_tables(first: Server, second: Server, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    first.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    follow_into(first, path)
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    second.execute("CREATE TABLE own (n bigint) WITH (RETAIN HISTORY FOR '1 hour')")
    second.execute("INSERT INTO own VALUES (7)")
    second.execute("CREATE INDEX i ON t (n)")
    assert second.execute("SELECT v FROM t WHERE n = 2") == [("b",)]
    second.execute("CREATE HOLD h ON t")
    first.execute("DROP SINK s")  # the source does not advance any more
    first.execute("INSERT INTO t VALUES (3, 'c')")
    time.sleep(0.2)  # what the sink wrote before is read
    stopped = second.frontier
    for _ in range(2):
        with second.connection.transaction():
            assert Counter(second.execute("SELECT * FROM t")) == Counter([(1, "a"), (2, "b")])
            assert second.execute("SELECT mz_now()") == [(stopped - 1,)]
            assert second.execute("SELECT v FROM t WHERE n = 3") == []
        assert second.execute("SELECT * FROM own") == [(7,)]
        second.restart()
    assert second.frontier == stopped
    second.execute(f"ALTER HOLD h ADVANCE TO {stopped - 1}")
    with pytest.raises(psycopg.Error, match="is before the read frontier"):
        second.execute(f"CREATE HOLD early ON t AT {second.frontiers(Source)[0] - 1}")


def test_a_table_is_written_from_a_source_that_changes(first: Server, second: Server, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    first.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    follow_into(first, path)
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    second.execute("CREATE TABLE own (n bigint, v text)")
    ended = threading.Event()

    def change_always() -> None:
        with psycopg.connect(first.connection.info.dsn, autocommit=True) as connection:
            while not ended.is_set():
                connection.execute("INSERT INTO t VALUES (3, 'c')")

    writer = threading.Thread(target=change_always)
    writer.start()
    try:
        for _ in range(10):
            second.execute("INSERT INTO own SELECT * FROM t")
    finally:
        ended.set()
        writer.join()
    assert Counter(second.execute("SELECT * FROM own"))[1, "a"] == 10


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    """A server with a table and a server that follows it."""
    path = tmp_path / "changes.json"
    first = Process(tmp_path / "first")
    first.execute("CREATE TABLE t (n bigint NOT NULL, v text) WITH (RETAIN HISTORY FOR '1 hour')")
    first.execute(
        f"CREATE SINK s FROM t INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE WITH (PROGRESS INTERVAL '1s')"
    )
    while not path.exists():
        time.sleep(0.01)
    second = Process(tmp_path / "second")
    second.execute(SOURCE.format(path=path, format=format_of(path)))
    yield [first, second]
    first.kill()
    second.kill()


@pytest.mark.crash
def test_a_client_that_is_ahead_waits_until_the_first_server_is_back(processes: list[Process]) -> None:
    """kill -9 of the first server, on which the client is: the follower has not received its last commits."""
    first, second = processes
    ports = f"{first.process.port},{second.process.port}"
    dsn = f"host=127.0.0.1,127.0.0.1 port={ports} user=materialize dbname=materialize"
    received: list[int] = []
    with closing(tidewire.subscribe(dsn, "t", retry=tidewire.Retry(first_s=0.02))) as batches:
        assert isinstance(next(batches), tidewire.Snapshot)
        for number in range(60):
            if number in (20, 40):
                first.kill()
                first.start()
            first.execute(f"INSERT INTO t VALUES ({number}, 'x')")
            begun = time.monotonic()
            while len(received) <= number:
                batch = next(batches)
                if not isinstance(batch, tidewire.Progress):
                    received += [row[0] for row, diff in batch.changes for _ in range(diff)]
            assert time.monotonic() - begun < 5
    assert received == list(range(60))


@pytest.mark.crash
@pytest.mark.long
def test_the_follower_is_killed(processes: list[Process]) -> None:
    """Its history is that of the first server, whenever kill -9 interrupts it."""
    first, second = processes
    choice = random.Random(1)
    begin = int(first.execute("SELECT mz_now()")[0][0])
    for _ in range(5):
        for n in range(choice.randrange(20, 60)):
            first.execute(f"INSERT INTO t VALUES ({n % 5 + 1}, 'x')")
            if n % 3 == 0:
                first.execute(f"DELETE FROM t WHERE n = {n % 4 + 1}")
        second.kill()
        second.start()
        time.sleep(choice.random() / 4)
    end = int(first.execute("SELECT mz_now()")[0][0])
    histories = []
    for server in processes:
        copy = f"COPY (SUBSCRIBE t AS OF {begin} UP TO {end + 1}) TO STDOUT"
        with server.connection.cursor().copy(copy.encode()) as rows:
            histories.append(sorted(rows.rows()))
    assert histories[0] == histories[1]
    assert len(histories[0]) > 100


@pytest.mark.crash
async def test_asyncpg_continues_on_the_other_server(processes: list[Process]) -> None:
    """The client loses the follower, and continues on the first server within 5 s."""
    first, second = processes
    hosts = f"127.0.0.1:{second.process.port},127.0.0.1:{first.process.port}"
    received: list[int] = []
    async with aio.subscribe(f"postgresql://materialize@{hosts}/materialize", "t") as batches:
        for number in range(20):
            first.execute(f"INSERT INTO t VALUES ({number}, 'x')")
            begun = time.monotonic()
            while len(received) <= number:
                batch = await anext(batches)
                if not isinstance(batch, tidewire.Progress):
                    received += [row[0] for row, diff in batch.changes for _ in range(diff)]
            assert time.monotonic() - begun < 5
            if number == 10:
                second.kill()
    assert received == list(range(20))
