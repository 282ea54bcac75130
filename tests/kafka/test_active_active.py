"""Several servers compute the same view and write its history to one topic. kill -9 of each of them changes nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import tidewire
from catalog.objects import MaterializedView
from server.spark.engine import SparkEngine
from tests.fix_server import ServerProcess, ServerThread
from tests.kafka.histories import HistoryWriter, Update, as_of, read_history
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.outputs import JoinEngine

PARTITIONS = 3
SOURCE = """
    CREATE SOURCE {name} (n bigint NOT NULL, v text) FROM KAFKA CONNECTION k (TOPIC '{topic}', TIMESTAMPS 'upstream')
        FORMAT JSON ENVELOPE MATERIALIZE WITH (RETAIN HISTORY FOR '10 minutes')
"""
VIEW = "CREATE MATERIALIZED VIEW {name} WITH (RETAIN HISTORY FOR '10 minutes') AS SELECT n, v FROM changes"
SINK = """
    CREATE SINK {name} FROM {view} INTO KAFKA CONNECTION k (TOPIC '{topic}') FORMAT JSON ENVELOPE MATERIALIZE
        WITH (PROGRESS INTERVAL = '100ms' {more})
"""
FAILOVER_S = 5.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
def topics(kafka: MockCluster) -> tuple[str, str]:
    """The topics of the input and of the output."""
    number = next(_numbers)
    found = f"in-{number}", f"out-{number}"
    for topic in found:
        kafka.create_topic(topic, PARTITIONS)
    return found


@contextmanager
def history(kafka: MockCluster, topic: str) -> Iterator[HistoryWriter]:
    with closing(HistoryWriter(kafka.address, topic, PARTITIONS, 1)) as writer:
        yield writer


class Server:
    """A server without Spark in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.start()

    def start(self) -> None:
        self.process = ServerProcess(
            self._directory, "--timestamp-interval", "50ms", module="tests.kafka.broker.server"
        )
        self.connection = psycopg.connect(self.process.dsn, autocommit=True)

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Executes statements, and returns the rows of the last one."""
        for statement in statements:
            cursor = self.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []

    def kill(self) -> None:
        self.process.kill()
        self.connection.close()

    def restart(self) -> None:
        self.kill()
        self.start()


def define(server: Server, kafka: MockCluster, topic: str) -> None:
    """Creates the source `changes` and the view `w`."""
    server.execute(
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')", SOURCE.format(name="changes", topic=topic)
    )
    server.execute(VIEW.format(name="w"))


def follow(server: Server, kafka: MockCluster, topic: str) -> None:
    """Creates the source `w` of a topic of a sink."""
    server.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')", SOURCE.format(name="w", topic=topic))


def until_frontier(kafka: MockCluster, topic: str, after_ms: int) -> None:
    """Waits until the frontier of a topic is after a time."""
    deadline = time.monotonic() + 30
    while read_history(kafka.address, topic)[0] <= after_ms:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def begin_of(kafka: MockCluster, topic: str) -> int:
    """The time of the snapshot in a topic."""
    return read_history(kafka.address, topic)[1][0][2]


def begin_of_view(server: Server) -> int:
    """The time at which the history of the view begins."""
    (id,) = (row[0] for row in server.execute("TABLE mz_materialized_views") if "w" in row)
    (begin,) = (row[1] for row in server.execute("TABLE mz_internal.mz_frontiers") if row[0] == id)
    return int(str(begin))


@pytest.mark.crash
def test_two_servers_write_a_topic_and_are_killed(kafka: MockCluster, topics: tuple[str, str], tmp_path: Path) -> None:
    source, out = topics
    servers = [Server(tmp_path / name) for name in ("x", "y")]
    reader = Server(tmp_path / "reader")
    try:
        with history(kafka, source) as writer:
            for server in servers:
                define(server, kafka, source)
            begin = max(map(begin_of_view, servers)) + 500
            time.sleep(1)
            for server in servers:  # the same statement: both write the rows at the same time
                server.execute(SINK.format(name="s", view="w", topic=out, more=f", AS OF {begin}"))
            follow(reader, kafka, out)
            until_frontier(kafka, out, begin)
            for number in range(4):
                victim = servers[number % 2]
                victim.kill()
                until_frontier(kafka, out, now_ms())  # the other server goes on
                victim.start()
                time.sleep(0.3)
            reader.restart()
        last = max(update[2] for update in writer.updates)
        until_frontier(kafka, out, last)
        frontier, updates = read_history(kafka.address, out)
        assert updates == as_of(writer.updates, begin)
        assert frontier > last
        found = reader.execute(f"SELECT * FROM w AS OF {last}")
        assert len(found) == sum(diff for *_, diff in updates)
        with reader.connection.cursor().copy(
            f"COPY (SUBSCRIBE w AS OF {begin} UP TO {last + 1}) TO STDOUT".encode()
        ) as rows:
            followed = [(int(n or 0), v, int(t or 0), int(d or 0)) for t, d, n, v in rows.rows()]
        assert as_of(followed, begin) == updates
    finally:
        for server in (*servers, reader):
            server.kill()


@pytest.mark.crash
def test_a_client_continues_when_a_server_is_killed(
    kafka: MockCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Both servers compute the view. The client gets each change once, at most FAILOVER_S after a kill."""
    source, _ = topics
    servers = [Server(tmp_path / name) for name in ("x", "y")]
    ports = ",".join(str(server.process.port) for server in servers)
    dsn = f"host=127.0.0.1,127.0.0.1 port={ports} user=materialize dbname=materialize"
    try:
        with history(kafka, source) as writer:
            for server in servers:
                define(server, kafka, source)
            begin = max(map(begin_of_view, servers)) + 500
            received: list[tuple[int, str | None, int, int]] = []
            killed = longest = 0.0
            with closing(tidewire.subscribe(dsn, "w", as_of=begin, retry=tidewire.Retry(first_s=0.05))) as batches:
                for number, batch in enumerate(batches):
                    if killed:
                        longest, killed = time.monotonic() - killed, 0.0
                    if not isinstance(batch, tidewire.Progress):
                        received += [(n, v, batch.time, diff) for (n, v), diff in batch.changes]
                    if number == 30:
                        servers[0].kill()
                        killed = time.monotonic()
                    if number == 60:
                        break
            assert 0 < longest < FAILOVER_S
            end = max(at for _, _, at, _ in received)
        expected = [update for update in as_of(writer.updates, begin) if update[2] <= end]
        assert as_of(received, begin) == expected
    finally:
        for server in servers:
            server.kill()


@pytest.mark.slow
def test_two_servers_compute_an_aggregate(
    kafka: MockCluster, topics: tuple[str, str], engine: SparkEngine, tmp_path: Path
) -> None:
    """The changes of each time are the same on both servers, although their steps contain different times."""
    source, out = topics
    servers = [ServerThread(tmp_path / str(interval_s), engine, interval_s=interval_s) for interval_s in (0.05, 0.3)]
    query = "WITH (RETAIN HISTORY FOR '10 minutes') AS SELECT sum(n)::bigint AS n, v FROM changes GROUP BY v"
    try:
        with history(kafka, source) as writer:
            begins = []
            for server in servers:
                with psycopg.connect(server.dsn(), autocommit=True) as connection:
                    connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')".encode())
                    connection.execute(SOURCE.format(name="changes", topic=source).encode())
                    connection.execute(f"CREATE MATERIALIZED VIEW w {query}".encode())
                coordinator = server.app.coordinator
                begins += [
                    coordinator.frontiers.since(item.id) for item in coordinator.state.items_of(MaterializedView)
                ]
            begin = max(begins) + 500
            time.sleep(1)
            for server in servers:
                with psycopg.connect(server.dsn(), autocommit=True) as connection:
                    connection.execute(SINK.format(name="s", view="w", topic=out, more=f", AS OF {begin}").encode())
            until_frontier(kafka, out, now_ms() + 1_000)
        last = max(update[2] for update in writer.updates)
        until_frontier(kafka, out, last)
        _, updates = read_history(kafka.address, out)
        assert updates == summed(writer.updates, begin)
        written = [server.app.sinks.running for server in servers]
        assert all(task.written.updates >= len(updates) for running in written for task in running.values())
    finally:
        for server in servers:
            server.stop()


def summed(updates: Sequence[Update], begin: int) -> list[Update]:
    """The history of the view `SELECT sum(n), v GROUP BY v` from a time on."""
    groups: dict[str | None, tuple[int, int]] = {}  # count and sum
    found: list[Update] = []
    for at in sorted({update[2] for update in updates}):
        before = dict(groups)
        for n, v, _, diff in (update for update in updates if update[2] == at):
            count, total = groups.get(v, (0, 0))
            groups[v] = count + diff, total + n * diff
        for v, (count, total) in groups.items():
            old, old_total = before.get(v, (0, 0))
            if (old > 0, old_total) != (count > 0, total):
                found += [(old_total, v, at, -1)] if old else []
                found += [(total, v, at, 1)] if count else []
    return as_of(found, begin)


@pytest.mark.slow
async def test_a_new_view_takes_over_a_topic(kafka: MockCluster, topics: tuple[str, str], tmp_path: Path) -> None:
    """The reader sees no interruption and no repetition when another sink continues and the first is dropped."""
    source, out = topics
    server = ServerThread(tmp_path / "server", JoinEngine(), interval_s=0.05)
    try:
        async with await psycopg.AsyncConnection.connect(server.dsn(), autocommit=True) as connection:

            async def execute(statement: str) -> list[tuple[object, ...]]:
                cursor = await connection.execute(statement.encode())
                return await cursor.fetchall() if cursor.description is not None else []

            with history(kafka, source) as writer:
                await execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")
                await execute(SOURCE.format(name="changes", topic=source))
                await execute(VIEW.format(name="w"))
                await execute(SINK.format(name="s", view="w", topic=out, more=""))
                until_frontier(kafka, out, now_ms())
                begin = begin_of(kafka, out)
                await execute(VIEW.format(name="better"))
                # A time that the first sink has written, and that the new view can be read at.
                frontiers = server.app.coordinator.frontiers
                (view,) = (item for item in server.app.coordinator.state.items.values() if item.name == "better")
                since = frontiers.since(view.id)
                frontier = 0
                while frontier <= since:
                    ((*_, written, _),) = await execute("TABLE mz_internal.mz_sink_statuses")
                    frontier = int(str(written or 0))
                continued = f", CONTINUE, AS OF {frontier - 1}"
                await execute(SINK.format(name="s2", view="better", topic=out, more=continued))
                shown = str((await execute("SHOW CREATE SINK s2"))[0][-1])
                assert shown.endswith(f"WITH (AS OF {frontier - 1}, PROGRESS INTERVAL = '100ms', CONTINUE = true)")
                await execute("DROP SINK s")
                await execute("DROP MATERIALIZED VIEW w")
                until_frontier(kafka, out, now_ms())
            last = max(update[2] for update in writer.updates)
            until_frontier(kafka, out, last)
            assert read_history(kafka.address, out)[1] == as_of(writer.updates, begin)
    finally:
        server.stop()
