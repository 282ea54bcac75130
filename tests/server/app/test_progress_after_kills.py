"""SIGKILL and progress: an update at a time before a reported progress never arrives after it, in any later life.

A client writes random commits while subscribers follow a table, a part of it, a view and an aggregate. The server is
killed at random moments, and each subscriber resumes from its last progress. In the end the updates that each received
with their progress are those of the history that the server has stored.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_server import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

FLAGS = ("--timestamp-interval", "50ms", "--spark-master", "local[1]")
RELATIONS = ("t", "m", "(SELECT b FROM t WHERE a = 1)", "(SELECT a, sum(b) AS s FROM t GROUP BY a)")
SETUP = (
    "CREATE TABLE t (a int, b int)",
    "CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a",
    "CREATE HOLD h ON t, m",
)
WAIT_S = 120
Commit = Sequence[str]
Updates = Counter[tuple[int, tuple[Any, ...]]]  # the diff of each (time, row)

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


class Subscriber:
    """Follows a relation in one life after another. `received`: the updates whose times a progress has closed."""

    def __init__(self, relation: str) -> None:
        self._relation = relation
        self.as_of = 0
        self.last: int | None = None  # the last progress after `as_of`
        self.received: Updates = Counter()
        self.failure: Exception | None = None
        self._moved = threading.Condition()
        self._count = 0
        self._thread: threading.Thread | None = None

    def start(self, dsn: str) -> None:
        self._thread = threading.Thread(target=self._run, args=(dsn,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._moved:
            reached = self._moved.wait_for(lambda: self.failure is not None or condition(), WAIT_S)
        if self.failure is not None:
            raise self.failure
        assert reached, f"{self._relation}: no progress after {self.last}"

    def wait_for_progress(self, messages: int) -> None:
        count = self._count + messages
        self.wait(lambda: self._count >= count)

    def _run(self, dsn: str) -> None:
        try:
            # A connection's own `with` would wait for the end of the stream after an error.
            with closing(psycopg.connect(dsn, autocommit=True)) as connection:
                self._follow(connection)
        except psycopg.OperationalError:
            pass  # the server was killed
        except Exception as error:
            with self._moved:
                self.failure = error
                self._moved.notify_all()

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        resumed = "" if self.last is None else f", SNAPSHOT false) AS OF {self.last - 1}"
        stream = connection.cursor().stream(f"SUBSCRIBE {self._relation} WITH (PROGRESS{resumed or ')'}".encode())
        first, progressed, *_ = next(stream)
        assert progressed
        if self.last is None:
            self.as_of = int(first)
        else:
            assert first == self.last - 1
        reported = int(first)  # a resumed stream may report `last` again, after `last - 1`
        unclosed: Updates = Counter()
        for time, progressed, diff, *row in stream:
            closed = self.as_of if self.last is None else self.last
            assert time >= closed, f"{self._relation}: a row at {time} after progress at {closed}"
            if not progressed:
                unclosed[int(time), tuple(row)] += diff
                continue
            assert time > reported, f"{self._relation}: progress at {time} after {reported}"
            reported = int(time)
            self.received.update({update: diff for update, diff in unclosed.items() if update[0] < time})
            unclosed = Counter({update: diff for update, diff in unclosed.items() if update[0] >= time})
            with self._moved:
                self.last = int(time)
                self._count += 1
                self._moved.notify_all()

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """The received updates are the history that is stored, from AS OF to the last progress."""
        sql = f"SUBSCRIBE {self._relation} AS OF {self.as_of} UP TO {self.last}"
        stored: Updates = Counter()
        for time, diff, *row in connection.cursor().stream(sql.encode()):
            stored[int(time), tuple(row)] += diff
        assert self.received == stored, self._relation


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
