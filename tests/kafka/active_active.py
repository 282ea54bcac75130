"""Servers that compute the same view from one topic, and what happens when they are killed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

import tidewire
from tests.fix_server import ServerProcess
from tests.kafka.histories import HistoryWriter, Update, as_of, read_history

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


class Kafka(Protocol):
    """The mock brokers, or a broker."""

    address: str

    def create_topic(self, topic: str, partitions: int = 1) -> None: ...


@contextmanager
def history(kafka: Kafka, topic: str) -> Iterator[HistoryWriter]:
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

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
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


def define(server: Server, kafka: Kafka, topic: str) -> None:
    """Creates the source `changes` and the view `w`."""
    server.execute(
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')", SOURCE.format(name="changes", topic=topic)
    )
    server.execute(VIEW.format(name="w"))


def follow(server: Server, kafka: Kafka, topic: str) -> None:
    """Creates the source `w` of a topic of a sink."""
    server.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')", SOURCE.format(name="w", topic=topic))


def until_frontier(kafka: Kafka, topic: str, after_ms: int) -> None:
    """Waits until the frontier of a topic is after a time."""
    deadline = time.monotonic() + 30
    while read_history(kafka.address, topic)[0] <= after_ms:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def begin_of(kafka: Kafka, topic: str) -> int:
    """The time of the snapshot in a topic."""
    return read_history(kafka.address, topic)[1][0][2]


def begin_of_view(server: Server) -> int:
    """The time at which the history of the view begins."""
    (id,) = (row[0] for row in server.execute("TABLE mz_materialized_views") if "w" in row)
    (begin,) = (row[1] for row in server.execute("TABLE mz_internal.mz_frontiers") if row[0] == id)
    return int(str(begin))


def check_killed_writers(kafka: Kafka, topics: tuple[str, str], directory: Path) -> None:
    """Two servers write a topic and are killed in turn. A third one follows it."""
    source, out = topics
    servers = [Server(directory / name) for name in ("x", "y")]
    reader = Server(directory / "reader")
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


class Follower(threading.Thread):
    """A client that follows `w` on a server, and notes when it receives what, until `stop`."""

    def __init__(self, server: Server, begin: int) -> None:
        super().__init__()
        self.received: list[Update] = []
        self.moments: list[float] = []
        """When each batch arrived, also those of progress, by the monotonic clock."""
        self.progress = 0
        self._batches = tidewire.subscribe(server.process.dsn, "w", as_of=begin)
        self.start()

    def run(self) -> None:
        with closing(self._batches) as batches:
            for batch in batches:
                self.moments.append(time.monotonic())
                if not isinstance(batch, tidewire.Progress):
                    self.received += [(n, v, batch.time, diff) for (n, v), diff in batch.changes]
                self.progress = batch.progress

    def stop(self, last: int) -> None:
        """Ends it when it has received everything up to the time `last`."""
        deadline = time.monotonic() + 30
        while self.progress <= last:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self._batches.close()
        self.join()

    def wait_for(self, count: int) -> None:
        """Waits for further batches."""
        target, deadline = len(self.moments) + count, time.monotonic() + 30
        while len(self.moments) < target:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def check_handover(kafka: Kafka, topics: tuple[str, str], directory: Path) -> None:
    """The only server that writes a topic is killed, and another one continues. A client follows the topic.

    Then the first server is started again and writes the same times once more, and the second is killed.
    """
    source, out = topics
    first, second, reader = servers = [Server(directory / name) for name in ("x", "y", "reader")]
    try:
        with history(kafka, source) as writer:
            for server in (first, second):
                define(server, kafka, source)
            begin = max(map(begin_of_view, (first, second))) + 500
            time.sleep(1)
            first.execute(SINK.format(name="s", view="w", topic=out, more=f", AS OF {begin}"))
            follow(reader, kafka, out)
            until_frontier(kafka, out, begin)
            follower = Follower(reader, begin)
            follower.wait_for(30)
            first.kill()
            killed = time.monotonic()
            # As an operator does: the readers' frontier is the time from which on the topic may lack something.
            ((frontier,),) = reader.execute("SELECT upstream_frontier FROM mz_internal.mz_source_frontiers")
            more = f", AS OF {int(str(frontier)) - 1}, CONTINUE"
            second.execute(SINK.format(name="s", view="w", topic=out, more=more))
            follower.wait_for(30)
            first.start()
            follower.wait_for(30)
            until_frontier(kafka, out, now_ms())
            second.kill()
            killed_again = time.monotonic()
            follower.wait_for(30)
        last = max(update[2] for update in writer.updates)
        until_frontier(kafka, out, last)
        follower.stop(last)
        expected = as_of(writer.updates, begin)
        assert as_of(follower.received, begin) == expected
        assert read_history(kafka.address, out)[1] == expected
        gaps = [(at, later - at) for at, later in itertools.pairwise(follower.moments)]
        takeover = max(gap for at, gap in gaps if at <= killed + FAILOVER_S and at + gap >= killed)
        assert takeover < FAILOVER_S
        assert max(gap for at, gap in gaps if at > killed_again - 0.5) < FAILOVER_S  # the first server writes already
    finally:
        for server in servers:
            server.kill()


def check_killed_server(kafka: Kafka, source: str, directory: Path) -> None:
    """Both servers compute the view. The client gets each change once, at most FAILOVER_S after a kill."""
    servers = [Server(directory / name) for name in ("x", "y")]
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
