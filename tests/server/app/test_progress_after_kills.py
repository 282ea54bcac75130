"""SIGKILL and progress: an update at a time before a reported progress never arrives after it, in any later life.

A client writes random commits while subscribers follow a table, a part of it, a view and an aggregate. The server is
killed at random moments, and each subscriber resumes from its last progress. In the end the updates that each received
with their progress are those of the history that the server has stored.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_server import ServerProcess
from tests.resuming import WAIT_S, Subscriber

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

FLAGS = ("--timestamp-interval", "50ms", "--spark-master", "local[1]")
RELATIONS = ("t", "m", "(SELECT b FROM t WHERE a = 1)", "(SELECT a, sum(b) AS s FROM t GROUP BY a)")
SETUP = (
    "CREATE TABLE t (a int, b int)",
    "CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a",
    "CREATE HOLD h ON t, m",
)
Commit = Sequence[str]

few = st.integers(0, 3)
changing = st.sampled_from(["DELETE FROM t WHERE b = {}", "UPDATE t SET b = 3 - b WHERE a = {}"])
inserts = st.lists(st.builds("INSERT INTO t VALUES ({}, {}), (1, {})".format, few, few, few), min_size=1, max_size=2)
commits = inserts | st.builds(lambda sql, n, rest: [sql.format(n), *rest], changing, few, inserts)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[list[Commit], str, int]]:
    """For each life: commits, and after how many progress messages to the subscriber of which relation it ends."""
    life = st.tuples(st.lists(commits, min_size=1, max_size=5), st.sampled_from(RELATIONS), st.integers(1, 8))
    return draw(st.lists(life, min_size=2, max_size=3))


class Writer(threading.Thread):
    """Executes the commits again and again until `stopped` is set or the connection fails."""

    def __init__(self, dsn: str, commits: Sequence[Commit]) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._commits = commits
        self.stopped = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for commit in itertools.cycle(self._commits):
                    with connection.transaction():
                        for statement in commit:
                            connection.execute(statement.encode())
                    if self.stopped.is_set():
                        return
        except psycopg.OperationalError:
            pass  # the server was killed
        except Exception as error:
            self.failure = error


@examples(3, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(ended=lives(), last=st.lists(commits, min_size=1, max_size=5))
def test_no_update_arrives_after_a_progress_that_closes_it(
    ended: list[tuple[list[Commit], str, int]], last: list[Commit]
) -> None:
    subscribers = {relation: Subscriber(relation) for relation in RELATIONS}
    with tempfile.TemporaryDirectory() as directory:
        for number, (commits, relation, messages) in enumerate([*ended, (last, "t", 1)]):
            server = ServerProcess(Path(directory) / "data", *FLAGS)
            try:
                if number == 0:
                    with psycopg.connect(server.dsn, autocommit=True) as connection:
                        for statement in SETUP:
                            connection.execute(statement.encode())
                for subscriber in subscribers.values():
                    subscriber.start(server.dsn)
                writer = Writer(server.dsn, commits)
                writer.start()
                subscribers[relation].wait_for_progress(messages)
                if number == len(ended):
                    writer.stopped.set()
                    writer.join(WAIT_S)
                    check_all(server, subscribers.values())
            finally:
                server.kill()
            writer.join(WAIT_S)
            assert writer.failure is None, writer.failure
            for subscriber in subscribers.values():
                subscriber.join()


def check_all(server: ServerProcess, subscribers: Iterable[Subscriber]) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        ((now,),) = connection.execute("SELECT mz_now()").fetchall()
        for subscriber in subscribers:
            subscriber.wait(lambda: subscriber.last is not None and subscriber.last > now)  # noqa: B023
            subscriber.check(connection)
