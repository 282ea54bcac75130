"""Sessions that wait, or make others wait: for locks, for a time, for notifications, and with many savepoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.messages.frontend import Query
from server.session_state.listening import CHANNELS_MAX, NOTIFICATIONS_MAX
from server.session_state.transaction import SAVEPOINTS_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.frontend.raw_client import RawClient, raw_client

pytestmark = pytest.mark.attacks

SESSIONS = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path)
    yield server
    assert server.stop() == 0


def sessions(connection: psycopg.Connection[Any]) -> int:
    (count,) = connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone() or (0,)
    return int(count)


def until_sessions(connection: psycopg.Connection[Any], count: int) -> None:
    deadline = time.monotonic() + 30
    while sessions(connection) != count:
        assert time.monotonic() < deadline, sessions(connection)
        time.sleep(0.05)


def sent(stack: ExitStack, server: ServerProcess, *texts: str) -> RawClient:
    """A session that has sent queries and reads no answers."""
    client = stack.enter_context(raw_client(server.port))
    client.start("materialize", "materialize")
    client.send(b"".join(Query(text).serialize() for text in texts))
    return client


def test_sessions_that_wait_disturb_nobody_and_leave_nothing(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE TABLE locked (a int); INSERT INTO locked VALUES (1)")
    before = sessions(connection)
    with psycopg.connect(server.dsn) as holder:
        holder.execute("LOCK TABLE locked")
        holder.execute("SELECT pg_advisory_xact_lock(1)")
        with ExitStack() as stack, watched(server):
            for text in (
                "SELECT pg_sleep('infinity')",
                "SELECT pg_advisory_lock(1)",
                "BEGIN; LOCK TABLE locked",
                "DELETE FROM locked WHERE a = 1",
            ):
                for _ in range(SESSIONS // 4):
                    sent(stack, server, text)
            time.sleep(2)
            with pytest.raises(errors.LockNotAvailable):
                connection.execute("SET lock_timeout = '100ms'; DELETE FROM locked WHERE a = 1")
        until_sessions(connection, before + 1)  # the sessions are lost, and wait no more
    until_sessions(connection, before)
    connection.execute("BEGIN; LOCK TABLE locked NOWAIT; DELETE FROM locked WHERE a = 1; COMMIT")
    assert connection.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)
    assert connection.execute("TABLE locked").fetchall() == []


@pytest.mark.long
def test_many_savepoints(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """Their cost per savepoint is constant, also with changed settings and several tables."""
    connection.execute("CREATE TABLE saved (a int); CREATE TABLE saved_too (a int)")
    with watched(server):
        for _ in range(3):
            connection.execute("BEGIN")
            with connection.pipeline():
                for number in range(SAVEPOINTS_MAX):
                    connection.execute(f"SAVEPOINT s{number}".encode())
                    connection.execute("INSERT INTO saved VALUES (%s)", [number])
                    connection.execute("INSERT INTO saved_too VALUES (%s)", [number])
                    connection.execute(f"SET LOCAL application_name = 'a{number}'".encode())
            with pytest.raises(errors.ProgramLimitExceeded):
                connection.execute("SAVEPOINT another")
            connection.execute("ROLLBACK TO s1")
            connection.execute("COMMIT")
    assert resident_bytes(server.process.pid) < 1 << 30
    assert connection.execute("SELECT * FROM saved").fetchall() == [(0,)] * 3


@pytest.mark.long
def test_listeners_that_never_read_are_ended(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """They cost a bounded amount of memory, and nothing to the sender and the listeners that read."""
    before = sessions(connection)
    with ExitStack() as stack, psycopg.connect(server.dsn, autocommit=True) as reader:
        reader.execute("LISTEN c")
        received: list[str] = []
        reader.add_notify_handler(lambda notify: received.append(notify.payload))
        for _ in range(SESSIONS):
            sent(stack, server, "LISTEN c")
        for _ in range(SESSIONS):
            sent(stack, server, "LISTEN c", "BEGIN")
        until_sessions(connection, before + 1 + 2 * SESSIONS)
        time.sleep(1)
        begun_bytes, worst_bytes, count = resident_bytes(server.process.pid), 0, 0
        deadline = time.monotonic() + 60
        with watched(server):
            while sessions(connection) > before + 2:  # the reader, and the one that `watched` opens
                with connection.transaction(), connection.pipeline():
                    for _ in range(100):
                        count += 1
                        connection.execute("SELECT pg_notify('c', %s)", [f"{count:08}" + "x" * 7_900])
                reader.execute("SELECT 1")
                worst_bytes = max(worst_bytes, resident_bytes(server.process.pid) - begun_bytes)
                assert time.monotonic() < deadline
        connection.execute("NOTIFY c, 'last'")
        while received[-1:] != ["last"]:
            reader.execute("SELECT 1")
        assert [int(payload[:8]) for payload in received[:-1]] == [*range(1, count + 1)], "the reader missed nothing"
    print(f"{count} notifications of 8 kB until {2 * SESSIONS} sessions were ended, {worst_bytes >> 20} MiB")
    assert worst_bytes < 256 << 20


@pytest.mark.long
def test_many_channels_and_notifications(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    with ExitStack() as stack, watched(server):
        names = "; ".join(f"LISTEN c{number}" for number in range(CHANNELS_MAX))
        listeners = [stack.enter_context(psycopg.connect(server.dsn, autocommit=True)) for _ in range(5)]
        for listener in listeners:
            listener.execute(names.encode())
            with pytest.raises(errors.ProgramLimitExceeded):
                listener.execute("LISTEN another")
        connection.execute("BEGIN")
        with connection.pipeline():
            for number in range(NOTIFICATIONS_MAX):
                connection.execute(f"NOTIFY c{number % CHANNELS_MAX}, '{number}'".encode())
        connection.execute("SAVEPOINT s")
        with pytest.raises(errors.ProgramLimitExceeded):
            connection.execute("NOTIFY c1, 'another'")
        connection.execute("ROLLBACK TO s")
        connection.execute("COMMIT")
        for listener in listeners:
            notified = [*listener.notifies(timeout=30, stop_after=NOTIFICATIONS_MAX)]
            assert [int(notify.payload) for notify in notified] == [*range(NOTIFICATIONS_MAX)]
