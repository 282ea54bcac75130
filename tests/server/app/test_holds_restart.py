"""HOLD and SIGKILL: positions and held history persist, and a client that resumes misses and repeats no update."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerProcess

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[3]
INTERVAL = ("--timestamp-interval", "50ms")
Connection = psycopg.Connection[Any]


def connect(server: ServerProcess) -> Connection:
    return psycopg.connect(server.dsn, autocommit=True)


def now(connection: Connection) -> int:
    ((moment,),) = connection.execute("SELECT mz_now()").fetchall()
    return int(moment)


def position(connection: Connection, hold: str) -> tuple[int, str]:
    ((at, status),) = connection.execute("SELECT at, status FROM mz_holds WHERE name = %s", (hold,)).fetchall()
    return int(at), status


def changes(connection: Connection, relation: str, as_of: int, up_to: int) -> Counter[tuple[Any, ...]]:
    """Returns how often a client that resumes after `as_of` receives each update `(time, diff, *row)`."""
    rows = connection.execute(
        f"SUBSCRIBE {relation} WITH (PROGRESS, SNAPSHOT false) AS OF {as_of} UP TO {up_to}"  # type: ignore[call-overload]
    ).fetchall()
    return Counter((int(moment), diff, *row) for moment, progressed, diff, *row in rows if not progressed)


def test_a_hold_keeps_its_position(tmp_path: Path) -> None:
    """The server is killed immediately after an ADVANCE is acknowledged, and once more."""
    server = ServerProcess(tmp_path, *INTERVAL)
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE INDEX i ON t (a)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("CREATE HOLD h ON t")
        connection.execute("CREATE HOLD on_index ON i")
        connection.execute("INSERT INTO t VALUES (2)")
        at = now(connection)
        connection.execute("INSERT INTO t VALUES (3)")
        connection.execute("INSERT INTO t VALUES (4)")
        end = now(connection)
        expected = changes(connection, "t", at, end + 1)
        connection.execute(f"ALTER HOLD on_index ADVANCE TO {at + 1}")
        connection.execute(f"ALTER HOLD h ADVANCE TO {at}")
    server.kill()
    for _ in range(2):
        server = ServerProcess(tmp_path, *INTERVAL)
        with connect(server) as connection:
            assert position(connection, "h") == (at, "ok")
            assert position(connection, "on_index") == (at + 1, "ok")
            assert now(connection) > end + 1_000, "retention alone would have let go"
            assert sorted(connection.execute(f"SELECT * FROM t AS OF {at}").fetchall()) == [(1,), (2,)]  # type: ignore[call-overload]
            got = changes(connection, "t", at, now(connection) + 1)
            assert got == expected
            assert [a for _, _, a in sorted(got)] == [3, 4]
            await_unreadable(connection, at - 1)
        server.kill()
    server = ServerProcess(tmp_path, *INTERVAL)
    with connect(server) as connection:
        connection.execute("DROP HOLD h")
        assert len(connection.execute(f"SELECT * FROM t AS OF {at + 1}").fetchall()) == 2, "the hold is lost"  # type: ignore[call-overload]
        connection.execute("DROP HOLD on_index")
    server.kill()
    server = ServerProcess(tmp_path, *INTERVAL)
    try:
        with connect(server) as connection:
            assert connection.execute("SHOW HOLDS").fetchall() == []
            await_unreadable(connection, at + 1)
    finally:
        server.stop()


def await_unreadable(connection: Connection, time_: int) -> None:
    """Waits until `t` cannot be read at a time. An index holds the history of its table until it is hydrated."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            connection.execute(f"SELECT * FROM t AS OF {time_}")  # type: ignore[call-overload]
        except psycopg.errors.DataException:
            return
    raise AssertionError(f"t can still be read at {time_}")


def test_a_held_materialized_view_keeps_its_history(tmp_path: Path) -> None:
    """The server is killed before the view has all commits. It then has them at their times, not the restart's."""
    server = ServerProcess(tmp_path, *INTERVAL)
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT sum(a) AS s FROM t")
        connection.execute("CREATE MATERIALIZED VIEW n AS SELECT s * 10 AS s FROM m")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT s FROM n").fetchall() == [(10,)]
        connection.execute("CREATE HOLD h ON m, n")
        at = now(connection)
        connection.execute("CREATE INDEX i ON n (s) WITH (RETAIN HISTORY FOR '2s')")
        connection.execute("ALTER MATERIALIZED VIEW m SET (RETAIN HISTORY FOR '3s')")
        connection.execute(f"ALTER HOLD h ADVANCE TO {at}")
        connection.execute("CREATE HOLD of_index ON i")
        times = []
        for number in (2, 3, 4):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
            times.append(now(connection))
    server.kill()
    server = ServerProcess(tmp_path, *INTERVAL)
    try:
        with connect(server) as connection:
            assert connection.execute(f"SELECT s FROM n AS OF {at}").fetchall() == [(10,)]  # type: ignore[call-overload]
            for moment, total in zip(times, (3, 6, 10), strict=True):
                query = f"SELECT m.s, n.s, (SELECT count(*) FROM n) FROM m, n AS OF {moment}"
                assert connection.execute(query).fetchall() == [(total, total * 10, 1)]  # type: ignore[call-overload]
            got = changes(connection, "n", at, now(connection) + 1)
            assert Counter(change[1:] for change in got) == Counter(
                [(-1, 10), (1, 30), (-1, 30), (1, 60), (-1, 60), (1, 100)]
            )
            assert len({moment for moment, *_ in got}) == 3, "one time for each commit"
            assert max(moment for moment, *_ in got) <= times[-1]
    finally:
        server.stop()


def test_downtime_does_not_count_towards_max_lag(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, *INTERVAL)
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE HOLD h ON t WITH (MAX LAG '4s')")
        at, _ = position(connection, "h")
    server.kill()
    threading.Event().wait(max(0.0, (at + 4_500) / 1_000 - time.time()))  # the hold exceeds MAX LAG at the restart
    server = ServerProcess(tmp_path, *INTERVAL)
    server.kill()  # before MAX LAG has passed again
    server = ServerProcess(tmp_path, *INTERVAL)
    try:
        began = time.monotonic()
        with connect(server) as connection:
            assert now(connection) - at > 4_000
            assert position(connection, "h") == (at, "ok")
            assert connection.execute(f"SELECT * FROM t AS OF {at}").fetchall() == []  # type: ignore[call-overload]
            while position(connection, "h") == (at, "ok"):
                assert time.monotonic() - began < 30, "the hold is not advanced"
                threading.Event().wait(0.05)
            assert time.monotonic() - began > 2, "advanced before MAX LAG had passed since the restart"
            assert position(connection, "h")[1] == "advanced"
        event = server.await_event("hold exceeded MAX LAG")
        assert event["hold"] == "materialize.public.h"
        assert event["before"] == at
    finally:
        server.stop()


def test_the_mirror_example_is_exact_after_crashes(tmp_path: Path) -> None:
    """The server and the example are killed repeatedly during writes. The copy has exactly the rows of the table."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    copy = tmp_path / "copy.sqlite"
    for life in range(4):
        server = ServerProcess(tmp_path / "data", *INTERVAL)
        with connect(server) as connection:
            if life == 0:
                connection.execute("CREATE TABLE t (a int, b text)")
                connection.execute("INSERT INTO t VALUES (0, 'before'), (0, 'before')")
                connection.execute("CREATE HOLD mirror ON t")
            for _ in range(2):
                mirror = start_mirror(server, copy)
                before = token(copy)
                for _ in range(dice.randrange(40)):
                    connection.execute("INSERT INTO t VALUES (%s, %s)", (dice.randrange(10), str(life)))
                while token(copy) == before:
                    assert mirror.poll() is None
                    threading.Event().wait(0.02)
                mirror.kill()
                mirror.wait()
        server.kill()
    server = ServerProcess(tmp_path / "data", *INTERVAL)
    try:
        with connect(server) as connection:
            connection.execute("DELETE FROM t WHERE a = 3")
            end = now(connection)
            mirror = start_mirror(server, copy)
            try:
                while token(copy) <= end:
                    assert mirror.poll() is None
                    threading.Event().wait(0.02)
            finally:
                mirror.kill()
                mirror.wait()
            rows = Counter(json.dumps(row) for row in connection.execute("SELECT a, b FROM t").fetchall())
            at, status = position(connection, "mirror")
            assert (at < token(copy), status) == (True, "ok")
    finally:
        server.stop()
    with sqlite3.connect(copy) as store:
        assert dict(store.execute("SELECT row, count FROM copy").fetchall()) == rows


def start_mirror(server: ServerProcess, copy: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "examples" / "mirror.py"), server.dsn, "t", "mirror", str(copy)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def token(copy: Path) -> int:
    """Returns the progress that the copy has reached; 0 before the first."""
    if not copy.exists():
        return 0
    with sqlite3.connect(copy, timeout=30) as store:
        try:
            found = store.execute("SELECT progress FROM token").fetchone()
        except sqlite3.OperationalError:  # it has no tables yet
            return 0
    return int(found[0]) if found else 0
