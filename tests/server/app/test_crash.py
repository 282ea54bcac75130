"""SIGKILL of servers: acknowledged writes are stored once, and reported progress stays valid."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerProcess, server_without_spark
from tests.polling import HANG_S

pytestmark = pytest.mark.crash


class Writer(threading.Thread):
    """Inserts consecutive numbers until the connection fails.

    `acknowledged`: the numbers of the acknowledged inserts, each with a later time.
    """

    def __init__(self, dsn: str, first: int) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self.first = first
        self.tried = first - 1
        self.acknowledged: dict[int, int] = {}
        self.started = threading.Event()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while True:
                    self.tried += 1
                    connection.execute("INSERT INTO t VALUES (%s)", (self.tried,))
                    (time,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
                    self.acknowledged[self.tried] = int(time)
                    self.started.set()
        except psycopg.Error:
            self.started.set()


class Subscriber(threading.Thread):
    """Subscribes to `t`. It counts updates once progress has closed their time."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self.rows: Counter[int] = Counter()
        self.progress: list[int] = []
        self.followed = threading.Event()

    def run(self) -> None:
        unclosed: list[tuple[int, int, int]] = []
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for time, progressed, diff, a in connection.cursor().stream("SUBSCRIBE t WITH (PROGRESS)"):
                    if not progressed:
                        unclosed.append((int(time), diff, a))
                        continue
                    for _, count, value in [update for update in unclosed if update[0] < time]:
                        self.rows[value] += count
                    unclosed = [update for update in unclosed if update[0] >= time]
                    self.progress.append(int(time))
                    if len(self.progress) > 2:
                        self.followed.set()
        except psycopg.Error:
            self.followed.set()


def test_kills_lose_and_repeat_no_write(tmp_path: Path) -> None:
    """Two writers and a subscriber run while the server is killed four times."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    acknowledged: set[int] = set()
    tried: set[int] = set()
    shown: set[int] = set()
    last_progress = 0
    for life in range(4):
        server = server_without_spark(tmp_path, "--timestamp-interval", "50ms")
        try:
            if life == 0:
                with psycopg.connect(server.dsn, autocommit=True) as connection:
                    connection.execute("CREATE TABLE t (a int)")
            subscriber = Subscriber(server.dsn)
            writers = [Writer(server.dsn, life * 1_000_000 + n * 100_000 + 1) for n in range(2)]
            for thread in (subscriber, *writers):
                thread.start()
            assert subscriber.followed.wait(HANG_S)
            assert all(writer.started.wait(HANG_S) for writer in writers)
            threading.Event().wait(dice.random())  # until the kill
        finally:
            server.kill()
        for thread in (subscriber, *writers):
            thread.join(HANG_S)
        assert subscriber.progress[0] >= last_progress, "progress went backwards"
        assert subscriber.progress == sorted(subscriber.progress)
        last_progress = subscriber.progress[-1]
        assert set(subscriber.rows.values()) <= {1}, "an update was received twice"
        closed = {n for w in writers for n, time in w.acknowledged.items() if time < last_progress}
        assert closed <= subscriber.rows.keys(), "progress closed a time that was not final"
        acknowledged |= {number for writer in writers for number in writer.acknowledged}
        tried |= {number for writer in writers for number in range(writer.first, writer.tried + 1)}
        shown |= subscriber.rows.keys()
    server = server_without_spark(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            stored = Counter(a for (a,) in connection.execute("SELECT a FROM t").fetchall())
    finally:
        assert server.stop() == 0
    print(f"{len(acknowledged)} writes acknowledged, {len(shown)} updates received over 4 kills")
    assert max(stored.values()) == 1, "a write is stored twice"
    assert not acknowledged - stored.keys(), "an acknowledged write is lost"
    assert not shown - stored.keys(), "a received update is lost"
    assert not stored.keys() - tried


class Incrementer(threading.Thread):
    """Increments the counters 0 to 3 in turn until the connection fails."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self.tried: Counter[int] = Counter()
        self.acknowledged: Counter[int] = Counter()
        self.started = threading.Event()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for key in itertools.cycle(range(4)):
                    self.tried[key] += 1
                    connection.execute("UPDATE counters SET n = n + 1 WHERE id = %s", (key,))
                    self.acknowledged[key] += 1
                    if key == 3:
                        self.started.set()
        except psycopg.Error:
            self.started.set()


def test_kills_lose_and_repeat_no_increment(tmp_path: Path) -> None:
    """Four clients increment four counters while the server is killed twice."""
    clients: list[Incrementer] = []
    for life in range(2):
        server = ServerProcess(tmp_path)
        try:
            if life == 0:
                with psycopg.connect(server.dsn, autocommit=True) as connection:
                    connection.execute("CREATE TABLE counters (id int, n int)")
                    connection.execute("INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
            threads = [Incrementer(server.dsn) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert all(thread.started.wait(HANG_S) for thread in threads)
        finally:
            server.kill()
        for thread in threads:
            thread.join(HANG_S)
        clients += threads
    server = ServerProcess(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            stored = dict(connection.execute("SELECT id, n FROM counters").fetchall())
    finally:
        assert server.stop() == 0
    for key in range(4):
        assert all(client.acknowledged[key] for client in clients)
        acknowledged = sum(client.acknowledged[key] for client in clients)
        tried = sum(client.tried[key] for client in clients)
        assert acknowledged <= stored[key] <= tried


def test_a_second_server_on_the_directory_is_refused(tmp_path: Path) -> None:
    server = server_without_spark(tmp_path)
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


def test_sigterm_ends_subscriptions_with_57p01(tmp_path: Path) -> None:
    server = server_without_spark(tmp_path)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        stream = connection.cursor().stream("SUBSCRIBE t WITH (PROGRESS)")
        next(stream)
        server.process.terminate()
        with pytest.raises(psycopg.errors.AdminShutdown):
            for _ in stream:
                pass
    assert server.process.wait(HANG_S) == 0  # a second signal could arrive when the server no longer handles it
    server.stop()


def test_a_materialized_view_is_maintained_after_a_crash(tmp_path: Path) -> None:
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


def test_a_killed_jvm_is_restarted_while_subscribers_wait(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--timestamp-interval", "50ms")
    try:
        first = server.await_event("Spark ready")
        with (
            psycopg.connect(server.dsn, autocommit=True) as connection,
            psycopg.connect(server.dsn, autocommit=True) as reader,
        ):
            connection.execute("CREATE TABLE t (a int)")
            stream = reader.cursor().stream("SUBSCRIBE (SELECT sum(a) AS s FROM t)")
            assert next(stream)[1:] == (1, None)
            os.kill(first["pid"], signal.SIGKILL)
            for number in (1, 2, 3):
                connection.execute("INSERT INTO t VALUES (%s)", (number,))
            changes = [next(stream) for _ in range(6)]
            stream.close()  # type: ignore[attr-defined]
        assert [c[0] for c in changes] == sorted(c[0] for c in changes)
        assert Counter(c[1:] for c in changes) == Counter([(-1, None), (1, 1), (-1, 1), (1, 3), (-1, 3), (1, 6)])
    finally:
        server.stop()


def _updates(connection: psycopg.Connection[Any], relation: str, after: int, up_to: int) -> dict[int, Counter[Any]]:
    """Returns the updates of a relation at times in (after, up_to), by time."""
    found: dict[int, Counter[Any]] = {}
    sql = f"SUBSCRIBE {relation} WITH (SNAPSHOT false) AS OF {after} UP TO {up_to}"
    for time, diff, *row in connection.cursor().stream(sql):
        found.setdefault(int(time), Counter())[tuple(row)] += diff
    return found


def _best(rows: Counter[Any]) -> Counter[Any]:
    """Returns the rows of the last view of the chain, given the rows of the table."""
    present = [row for row, count in rows.items() for _ in range(count)]
    kept = [(k, v) for k, v in present if v >= 0]
    best = {k: max(v for other, v in kept if other == k) for k, _ in kept}
    number = Counter(k for k, _ in kept)
    return Counter((k, number[k], v) for k, v in kept if v == best[k])


@pytest.mark.long
def test_a_chain_of_views_is_exact_at_every_time_through_crashes(tmp_path: Path) -> None:
    """The last view is indexed and held. Each of its updates has the time of the commit, and occurs once."""
    draw = random.Random(7)
    server = ServerProcess(tmp_path)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (1, 1), (2, -1), (2, 5)")
        connection.execute("CREATE MATERIALIZED VIEW a AS SELECT k, v FROM t WHERE v >= 0")
        connection.execute("CREATE MATERIALIZED VIEW b AS SELECT k, count(*) AS n, max(v) AS m FROM a GROUP BY k")
        connection.execute("CREATE MATERIALIZED VIEW c AS SELECT b.k, n, v FROM b JOIN a ON a.k = b.k AND v = m")
        connection.execute("CREATE INDEX ON c (k)")
        assert connection.execute("SELECT count(*) FROM c").fetchall() == [(2,)]
        connection.execute("CREATE HOLD h ON t, c")
        ((start,),) = connection.execute('SELECT "at"::text FROM mz_holds').fetchall()
        table = Counter(connection.execute(f"SELECT k, v FROM t AS OF {start}".encode()).fetchall())
    for _ in range(2):
        killed = threading.Timer(1.5 + draw.random(), server.kill)
        killed.start()
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                while True:
                    k, v = draw.randrange(4), draw.randrange(-2, 9)
                    connection.execute("INSERT INTO t VALUES (%s, %s), (%s, %s)", (k, v, k, v - 1))
                    if draw.random() < 0.3:
                        connection.execute("DELETE FROM t WHERE v = %s", (draw.randrange(9),))
        except psycopg.Error:
            killed.join()
        server = ServerProcess(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO t VALUES (9, 9)")
            ((now,),) = connection.execute("SELECT mz_now()::text").fetchall()
            assert (9, 1, 9) in connection.execute("SELECT * FROM c").fetchall()
            of_table = _updates(connection, "t", int(start), int(now) + 1)
            of_view = _updates(connection, "c", int(start), int(now) + 1)
    finally:
        assert server.stop() == 0
    assert of_view.keys() <= of_table.keys()
    assert len(of_view) > 5
    view = _best(table)
    for time in sorted(of_table):
        table.update(of_table[time])
        view.update(of_view.get(time, Counter()))
        assert min(view.values()) >= 0
        assert +view == _best(+table), f"at {time}"


class Alterer(threading.Thread):
    """Replaces the column `a<n - 1>` by `a<n>` and adds the row n, in a transaction for each n, until it fails."""

    def __init__(self, dsn: str, first: int) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self.done = first - 1
        self.started = threading.Event()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for n in itertools.count(self.done + 1):
                    type = ("int", "bigint")[n % 2]
                    connection.execute(
                        f"BEGIN; ALTER TABLE t ADD COLUMN a{n} int DEFAULT {n};"
                        f"INSERT INTO t (k, a{n}) VALUES ({n}, -{n});"
                        f"ALTER TABLE t DROP COLUMN a{n - 1}, ALTER COLUMN b TYPE {type}; COMMIT".encode()
                    )
                    self.done = n
                    self.started.set()
        except psycopg.Error:
            self.started.set()


def test_kills_leave_tables_altered_or_not(tmp_path: Path) -> None:
    """A table is altered and written while the server is killed four times. Temporary tables do not survive."""
    done = 0
    for life in range(5):
        server = ServerProcess(tmp_path, "--timestamp-interval", "50ms")
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                if life == 0:
                    connection.execute("CREATE TABLE t (k int, b int, a0 int)")
                (column,) = connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attname LIKE 'a%'"
                ).fetchall()
                last = int(column[0][1:])
                assert done <= last <= done + 1
                found = connection.execute(f"SELECT k, b, a{last} FROM t".encode()).fetchall()
                assert sorted(found) == [(n, None, -n if n == last else last) for n in range(1, last + 1)]
                connection.execute("CREATE TEMP TABLE mine (k int)")
                assert connection.execute("SELECT count(*) FROM pg_class WHERE relpersistence = 't'").fetchone() == (1,)
                alterer = Alterer(server.dsn, last + 1)
                alterer.start()
                assert alterer.started.wait(HANG_S)
                threading.Event().wait(random.random() * 2)  # until the kill
        finally:
            server.kill()
        alterer.join(HANG_S)
        done = alterer.done
    assert done > 4
