"""Progress of COPY and of hydration: notices while a statement runs, and pg_stat_progress_copy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import Notice
from server.session_state.progress import interval_s_of
from server.session_state.sender import Sender
from server.settings.session_settings import Settings
from server.spark.engine import SparkEngine
from tests.fix_postgres import binaries
from tests.fix_server import ServerThread
from tests.server.slow_engine import SlowEngine

SLOW = "SELECT k, count(*) FILTER (WHERE s <> 'slow') AS n FROM t GROUP BY k"


@pytest.fixture
def slow(engine: SparkEngine) -> SlowEngine:
    return SlowEngine(engine, "'slow'")


@pytest.fixture
def slow_server(slow: SlowEngine, tmp_path: Path) -> Iterator[ServerThread]:
    own = ServerThread(tmp_path, slow, interval_s=0.02)
    yield own
    slow.open()
    own.stop()


def heard(connection: psycopg.Connection, then: Any = None) -> list[str]:
    """The messages of the notices from now on. `then` is called for each."""
    found: list[str] = []

    def handler(notice: psycopg.errors.Diagnostic) -> None:
        found.append(notice.message_primary or "")
        if then is not None:
            then()

    connection.add_notice_handler(handler)
    return found


# -- COPY --------------------------------------------------------------------------------------------------------------


def test_psql_shows_the_rows_received_so_far(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        # A pause longer than the interval, in the middle of the data.
        feed = "echo 1; echo 2; sleep 0.5; echo 3"
        commands = "-c 'SET progress_notice_interval = 100' -c 'COPY t FROM STDIN'"
        done = subprocess.run(
            ["bash", "-c", f"({feed}) | '{binaries() / 'psql'}' -X -q '{passing_server.dsn()}' {commands}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert (
            'NOTICE:  received 0 MB for table "t" in 0 s, 0 rows decoded\n' in done.stderr
        )  # some MB are decoded together
        assert sorted(connection.execute("TABLE t").fetchall()) == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"application_name": "psql"}, 5.0),
        ({"application_name": "psql", "progress_notice_interval": "0"}, None),
        ({"progress_notice_interval": "250ms"}, 0.25),
        ({"application_name": "psql", "progress_notice_interval": "1min"}, 60.0),
    ],
)
def test_the_interval(settings: dict[str, str], expected: float | None) -> None:
    found = Settings()
    for name, value in settings.items():
        found.set(name, value)
    assert interval_s_of(found) == expected


@pytest.mark.parametrize(
    "setting", ["progress_notice_interval = 'auto'", "progress_notice_interval = 0", "client_min_messages = warning"]
)
def test_drivers_receive_none_unless_they_ask(passing_server: ServerThread, setting: str) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("SET progress_notice_interval = 100")
        connection.execute(f"SET {setting}".encode())
        notices = heard(connection)
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("1\n")
            time.sleep(0.4)
        assert not notices


def test_a_wrong_interval_is_refused(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET progress_notice_interval = 'often'")
        assert connection.execute("SHOW progress_notice_interval").fetchall() == [("auto",)]


class _Socket:
    """A transport whose client does not read while `is_full`."""

    is_full = False
    written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def test_a_client_that_does_not_read_receives_no_more_notices() -> None:
    socket = _Socket()
    sender = Sender(Connection(), socket)  # type: ignore[arg-type]
    sender.send_now(Notice("first"))
    assert b"first" in socket.written
    socket.is_full = True
    for _ in range(100):
        sender.send_now(Notice("more"))
    assert b"more" not in socket.written
    assert not sender.connection.data_to_send()


PROGRESS = (
    "SELECT command, type, relid::bigint = 't'::regclass::bigint, bytes_processed, bytes_total, tuples_processed,"
    " tuples_excluded, datname = current_database() FROM pg_stat_progress_copy WHERE pid = %s"
)


def test_pg_stat_progress_copy_is_that_of_postgresql(postgres: str, passing_server: ServerThread) -> None:
    seen = []
    for dsn in (postgres, passing_server.dsn()):
        with psycopg.connect(dsn, autocommit=True) as copying, psycopg.connect(dsn, autocommit=True) as watching:
            copying.execute("DROP TABLE IF EXISTS t")
            copying.execute("CREATE TABLE t (a int)")
            with copying.cursor().copy("COPY t FROM STDIN") as copy:
                for _ in range(100):
                    copy.write("1\n22\n" * 20_000)
                deadline = time.monotonic() + 20
                while (rows := progress(watching, copying)) == [] or not rows[0][5]:
                    assert time.monotonic() < deadline, rows
            seen.append([(*row[:3], row[4], *row[6:]) for row in rows])
            assert 0 < rows[0][3] <= 10_000_000
            assert rows[0][5] <= 4_000_000
            assert progress(watching, copying) == []
            copying.execute("DROP TABLE t")
    theirs, ours = seen
    assert ours == theirs == [("COPY FROM", "PIPE", True, 0, 0, True)]


def progress(watching: psycopg.Connection, copying: psycopg.Connection) -> list[tuple[Any, ...]]:
    return watching.execute(PROGRESS, [copying.info.backend_pid]).fetchall()


def test_other_roles_see_no_numbers(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as copying:
        copying.execute("CREATE TABLE t (a int)")
        copying.execute("CREATE ROLE other LOGIN")
        with psycopg.connect(passing_server.dsn(), user="other", autocommit=True) as watching:
            with copying.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("1\n")
                query = "SELECT pid, relid, command, bytes_processed, tuples_processed FROM pg_stat_progress_copy"
                while not (rows := watching.execute(query).fetchall()):
                    pass
        assert rows == [(copying.info.backend_pid, None, None, None, None)]


def test_copy_to_is_shown(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as copying:
        copying.execute("CREATE TABLE t (a int, b text)")
        with copying.cursor().copy("COPY t FROM STDIN") as copy:
            for start in range(0, 200_000, 10_000):
                copy.write("".join(f"{n}\t{'x' * 200}\n" for n in range(start, start + 10_000)))
        with psycopg.connect(passing_server.dsn(), autocommit=True) as watching:
            with copying.cursor().copy("COPY t TO STDOUT") as rows:
                next(iter(rows))
                # The client does not read, so the server cannot have sent everything.
                ((command, type, *_, sent, total, count, _, _),) = progress(watching, copying)
                assert (command, type, total) == ("COPY TO", "PIPE", 0)
                assert 0 < sent < 41_000_000
                assert 0 <= count < 200_000
                for _ in rows:
                    pass
            assert progress(watching, copying) == []


# -- hydration ---------------------------------------------------------------------------------------------------------


def test_a_subscription_reports_the_hydration_of_its_query(slow: SlowEngine, slow_server: ServerThread) -> None:
    with psycopg.connect(slow_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, s text)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("SET progress_notice_interval = 100")
        notices = heard(connection, slow.open)
        with slow.shut_gate():
            stream = connection.cursor().stream(f"SUBSCRIBE ({SLOW})".encode())
            assert next(stream)[1:] == (1, 1, 1)
        stream.close()
    assert notices[0] == "hydrating the query: 1 of 2 operators done, 1 of 1 rows read"


def test_a_query_reports_that_spark_is_starting(
    slow: SlowEngine, slow_server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(slow_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, s text)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("SET progress_notice_interval = 100")
        notices = heard(connection, slow.open)
        monkeypatch.setattr(SlowEngine, "ready", False, raising=False)
        with slow.shut_gate():
            assert connection.execute(SLOW.encode()).fetchall() == [(1, 1)]
    assert notices[0] == "waiting for Spark, which is starting"


def test_a_query_reports_the_hydration_of_a_view(slow: SlowEngine, slow_server: ServerThread) -> None:
    with psycopg.connect(slow_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, s text)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("SET progress_notice_interval = 100")
        for number, role in enumerate(("materialize", "reader")):
            with slow.shut_gate():
                connection.execute(f"CREATE MATERIALIZED VIEW v{number} AS {SLOW}".encode())
                connection.execute(f"GRANT SELECT ON v{number} TO reader".encode())
                with psycopg.connect(slow_server.dsn(), user=role, autocommit=True) as reading:
                    reading.execute("SET progress_notice_interval = 100")
                    notices = heard(reading, slow.open)
                    assert reading.execute(f"SELECT * FROM v{number}".encode()).fetchall() == [(1, 1)]
            text = f'hydrating materialized view "v{number}": 1 of 2 operators done'
            assert notices[0] == (f"{text}, 1 of 1 rows read" if role == "materialize" else text)
