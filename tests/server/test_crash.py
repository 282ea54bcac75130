"""kill -9 of real server processes: what was acknowledged is there once, what progress told stays true."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Writer(threading.Thread):
    """Inserts numbers one by one until the server is gone; `acknowledged` are those it was told of."""

    def __init__(self, dsn: str, first: int) -> None:
        super().__init__()
        self._dsn = dsn
        self.tried = first - 1
        self.acknowledged: list[int] = []
        self.started = threading.Event()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while True:
                    self.tried += 1
                    connection.execute("INSERT INTO t VALUES (%s)", (self.tried,))
                    self.acknowledged.append(self.tried)
                    self.started.set()
        except psycopg.Error:
            self.started.set()


class Subscriber(threading.Thread):
    """Follows `t` from a resume point; keeps rows by the rule: nothing counts before progress has passed it."""

    def __init__(self, dsn: str, rows: Counter[tuple[Any, ...]], resume: int | None) -> None:
        super().__init__()
        self._dsn = dsn
        self.rows = rows
        self.resume = resume
        self.progressed = threading.Event()

    def run(self) -> None:
        start = "" if self.resume is None else f", SNAPSHOT false) AS OF {self.resume - 1}"
        statement = "SUBSCRIBE t WITH (PROGRESS" + (start or ")")
        first = self.resume if self.resume is not None else None
        waiting: list[tuple[int, int, tuple[Any, ...]]] = []
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for time, progressed, diff, *row in connection.cursor().stream(statement):
                    if not progressed:
                        waiting.append((int(time), diff, tuple(row)))
                        continue
                    if first is None:
                        first = int(time) + 1  # the first progress precedes the snapshot: it is no resume point
                        continue
                    for at, count, values in waiting:
                        if at < time:
                            self.rows[values] += count
                    waiting = [entry for entry in waiting if entry[0] >= time]
                    if time >= first:
                        self.resume = int(time)
                        self.progressed.set()
        except psycopg.Error:
            pass


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Writers and a resuming subscriber over several lives of a server."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    directory = tmp_path / "data"
    acknowledged: list[int] = []
    tried: set[int] = set()
    followed: Counter[tuple[Any, ...]] = Counter()
    resume: int | None = None
    last_progress = 0
    for life in range(4):
        server = ServerProcess(directory, "--timestamp-interval", "50ms")
        if life == 0:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("CREATE TABLE t (a int)")
        subscriber = Subscriber(server.dsn, followed, resume)
        writers = [Writer(server.dsn, life * 1_000_000 + n * 100_000 + 1) for n in range(2)]
        for thread in (subscriber, *writers):
            thread.start()
        assert subscriber.progressed.wait(20)
        for writer in writers:
            assert writer.started.wait(20)
        threading.Event().wait(dice.random())  # how long this life lasts
        server.kill()
        for thread in (subscriber, *writers):
            thread.join(20)
        acknowledged += [number for writer in writers for number in writer.acknowledged]
        tried |= {n for n, writer in enumerate(writers) for n in range(writer.acknowledged[0], writer.tried + 1)}
        resume = subscriber.resume
        assert resume is not None
        assert resume > last_progress, "time went back"
        last_progress = resume
    server = ServerProcess(directory)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            stored = Counter(a for (a,) in connection.execute("SELECT a FROM t").fetchall())
            assert max(stored.values()) == 1, "a write is there twice"
            assert not set(acknowledged) - stored.keys(), "an acknowledged write is lost"
            assert not stored.keys() - tried
            (now,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
            statement = f"SUBSCRIBE t WITH (SNAPSHOT false) AS OF {resume - 1 if resume else 0} UP TO {int(now) + 1}"
            # The last life's history may be compacted by now; then the rows at the resume point are all there is.
            try:
                for _, diff, a in connection.cursor().stream(statement):
                    followed[(a,)] += diff
                assert Counter({a: n for (a,), n in followed.items() if n}) == stored
            except psycopg.errors.DataException:
                assert not {a for (a,), n in followed.items() if n} - stored.keys()
    finally:
        assert server.stop() == 0


def test_a_second_server_on_the_directory_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    try:
        second = subprocess.run(
            [sys.executable, "-m", "server", "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 1
        assert f"is in use by another server (process {server.process.pid})" in second.stderr
        assert "HINT" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        server.stop()


def test_sigterm_ends_streams_with_57p01(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        stream = connection.cursor().stream("SUBSCRIBE t WITH (PROGRESS)")
        next(stream)
        server.process.terminate()
        with pytest.raises(psycopg.errors.AdminShutdown):
            for _ in stream:
                pass
    assert server.process.wait(10) == 0


def test_a_materialized_view_goes_on_after_a_crash(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--timestamp-interval", "50ms")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        connection.execute("INSERT INTO t VALUES (1), (2)")
        assert connection.execute("SELECT n FROM v").fetchone() == (2,)
        connection.execute("INSERT INTO t VALUES (3)")
    server.kill()
    server = ServerProcess(tmp_path, "--timestamp-interval", "50ms")
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("SELECT n FROM v").fetchone() == (3,)
            connection.execute("DELETE FROM t WHERE a = 1")
            assert connection.execute("SELECT n FROM v").fetchone() == (2,)
    finally:
        server.stop()
