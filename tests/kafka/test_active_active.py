"""Several servers compute the same view and write its history to one topic. kill -9 of each of them changes nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from catalog.objects.views import MaterializedView
from server.spark.engine import SparkEngine
from tests.fix_server import ServerThread
from tests.kafka.active_active import (
    PARTITIONS,
    SINK,
    SOURCE,
    VIEW,
    begin_of,
    check_handover,
    check_killed_server,
    check_killed_writers,
    history,
    now_ms,
    until_frontier,
)
from tests.kafka.histories import Update, as_of, read_history
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.outputs import JoinEngine
from tests.kafka.registry import Registry, RegistryThread

AVRO = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
def registry() -> Iterator[Registry]:
    with RegistryThread() as found:
        yield found


@pytest.fixture
def topics(kafka: MockCluster) -> tuple[str, str]:
    """The topics of the input and of the output."""
    number = next(_numbers)
    found = f"in-{number}", f"out-{number}"
    for topic in found:
        kafka.create_topic(topic, PARTITIONS)
    return found


@pytest.mark.crash
@pytest.mark.long
def test_two_servers_write_a_topic_and_are_killed(kafka: MockCluster, topics: tuple[str, str], tmp_path: Path) -> None:
    check_killed_writers(kafka, topics, tmp_path)


@pytest.mark.crash
def test_a_client_continues_when_a_server_is_killed(
    kafka: MockCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    check_killed_server(kafka, topics[0], tmp_path)


@pytest.mark.crash
def test_a_second_server_takes_over_a_topic(kafka: MockCluster, topics: tuple[str, str], tmp_path: Path) -> None:
    check_handover(kafka, topics, tmp_path)


@pytest.mark.long
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
        query = "SELECT v, count(*), max(n) FROM changes WHERE n > 2 GROUP BY v"
        copy = f"COPY (SUBSCRIBE ({query}) AS OF {begin} UP TO {last + 1}) TO STDOUT"
        answers, present = [], []
        for server in servers:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                with connection.cursor().copy(copy.encode()) as rows:
                    answers.append(sorted(rows.rows(), key=str))
                present.append(sorted(connection.execute(query.encode()).fetchall(), key=str))
        assert answers[0] == answers[1]
        assert present[0] == present[1]
        assert sum(count for _, count, _ in present[0]) == sum(diff for n, _, _, diff in writer.updates if n > 2)
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


def test_a_source_of_several_topics_keeps_their_times(kafka: MockCluster, registry: Registry, tmp_path: Path) -> None:
    """Two tables of one server are followed by one source of another, also over a restart."""
    for topic in ("first", "second"):
        kafka.create_topic(topic, PARTITIONS)
    servers = {name: ServerThread(tmp_path / name, JoinEngine(), interval_s=0.05) for name in ("leader", "follower")}
    connect_registry = f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}')".encode()
    connect = f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')".encode()
    try:
        with psycopg.connect(servers["leader"].dsn(), autocommit=True) as leader:
            leader.execute(connect)
            leader.execute(connect_registry)
            for name, topic in (("a", "first"), ("b", "second")):
                table = f"CREATE TABLE {name} (n bigint NOT NULL, v text) WITH (RETAIN HISTORY FOR '10 minutes')"
                leader.execute(table.encode())
                sink = SINK.format(name=f"{name}_out", view=name, topic=topic, more="")
                leader.execute(sink.replace("FORMAT JSON", AVRO).encode())
            with psycopg.connect(servers["follower"].dsn(), autocommit=True) as follower:
                follower.execute(connect)
                follower.execute(connect_registry)
                while not {"first-value", "second-value"} <= registry.subjects.keys():
                    time.sleep(0.01)
                follower.execute(
                    f"CREATE SOURCE s FROM KAFKA CONNECTION k (TIMESTAMPS 'upstream') {AVRO} ENVELOPE MATERIALIZE "
                    "FOR TABLES (first AS a, second AS b) WITH (RETAIN HISTORY FOR '10 minutes')".encode()
                )
            for number in range(20):
                leader.execute(f"INSERT INTO {'ab'[number % 2]} VALUES ({number}, 'x')".encode())
                if number == 10:
                    servers["follower"].stop()
                    servers["follower"] = ServerThread(tmp_path / "follower", JoinEngine(), interval_s=0.05)
            last = servers["leader"].app.coordinator.latest_time()
            begins: dict[str, int] = {}
            answers = []
            for server in reversed(servers.values()):
                frontiers = server.app.coordinator.frontiers
                with psycopg.connect(server.dsn(), autocommit=True) as connection:
                    for name in "ab":
                        (item,) = (i for i in server.app.coordinator.state.items.values() if i.name == name)
                        while frontiers.upper(item.id) <= last:
                            time.sleep(0.01)
                        begin = begins.setdefault(name, frontiers.since(item.id))
                        copy = f"COPY (SUBSCRIBE {name} AS OF {begin} UP TO {last + 1}) TO STDOUT"
                        with connection.cursor().copy(copy.encode()) as rows:
                            answers.append(sorted(rows.rows(), key=str))
            assert answers[:2] == answers[2:]
            assert [len(each) for each in answers] == [10, 10, 10, 10]
    finally:
        for server in servers.values():
            server.stop()
