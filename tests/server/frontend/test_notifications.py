"""LISTEN and NOTIFY do what they do in PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from server.frontend import notification_sender
from server.session_state import listening
from tests.examples import examples
from tests.fix_postgres import binaries
from tests.fix_server import Connect, ServerThread
from tests.polling import HANG_S
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]

CHANNELS = st.sampled_from(("a", '"B c"'))
PAYLOADS = st.sampled_from(("", ", ''", ", 'x'", ", E'it''s\\n'"))
STEPS = st.one_of(
    st.builds("LISTEN {}".format, CHANNELS),
    st.builds("UNLISTEN {}".format, CHANNELS),
    *[st.builds("NOTIFY {}{}".format, CHANNELS, PAYLOADS)] * 2,
    st.builds("SELECT pg_notify('a', {})".format, st.sampled_from(("'x'", "NULL", "'é' || 'x'"))),
    st.sampled_from(("BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "ROLLBACK", "SELECT 1 / 0")),
    st.sampled_from(("INSERT INTO noted VALUES (1)", "UNLISTEN *", "DISCARD ALL")),
)


@pytest.fixture
def connect(connect: Connect) -> Connect:
    return partial(connect, prepare_threshold=None)


class Inbox:
    """What a connection has received: the channel, the payload, and whether the connection itself has sent it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.received: list[tuple[str, str, bool]] = []
        connection.add_notify_handler(self._add)

    def _add(self, notify: psycopg.Notify) -> None:
        self.received.append((notify.channel, notify.payload, notify.pid == self._connection.info.backend_pid))

    def until(self, channel: str) -> list[tuple[str, str, bool]]:
        """Everything up to the first notification on this channel."""
        deadline = time.monotonic() + 10
        while not any(received[0] == channel for received in self.received):
            assert time.monotonic() < deadline
            self._connection.execute("SELECT 1")
        return self.received


def unambiguous(steps: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The steps without each LISTEN in a block during which the other session may have notified.

    A session that already listens on another channel receives such a notification in PostgreSQL. Its manual only
    promises those that are committed after the LISTEN.
    """
    is_block, is_notified = [False, False], [False, False]
    for number, step in steps:
        if step == "BEGIN" and not is_block[number]:
            is_block[number], is_notified[number] = True, False
        elif step in ("COMMIT", "ROLLBACK"):
            is_block[number] = False
        if step == "COMMIT" or "notify" in step.lower():
            is_notified[1 - number] = True
        if not (step.startswith("LISTEN") and is_block[number] and is_notified[number]):
            yield number, step


def test_notifications_are_as_in_postgresql(postgres: str, connect: Connect) -> None:
    ours = [connect(), connect()]
    with ExitStack() as opened:
        theirs = [
            opened.enter_context(psycopg.connect(postgres, autocommit=True, prepare_threshold=None)) for _ in ours
        ]
        theirs[0].execute("DROP TABLE IF EXISTS noted")
        for connections in (theirs, ours):
            connections[0].execute("CREATE TABLE noted (a int)")

        @examples(100)
        @given(st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=1, max_size=20))
        def compare(steps: list[tuple[int, str]]) -> None:
            inboxes: list[list[Inbox]] = []
            for connections in (theirs, ours):
                for connection in connections:
                    connection.execute("ROLLBACK")
                    connection.execute("UNLISTEN *")
                    connection.execute("LISTEN final")
                    connection._notify_handlers.clear()
                inboxes.append([Inbox(connection) for connection in connections])
            for number, step in unambiguous(steps):
                assert done(ours[number], step) == done(theirs[number], step), step
            for connections in (theirs, ours):
                for connection in connections:
                    connection.execute("ROLLBACK")
                    connection.execute("LISTEN final")
                connections[0].execute("NOTIFY final")
            for their, our in zip(*inboxes, strict=True):
                assert our.until("final") == their.until("final")

        compare()
        theirs[0].execute("DROP TABLE noted")


def test_wrong_channels_and_payloads(postgres: str, connect: Connect) -> None:
    ours = connect()
    with psycopg.connect(postgres, autocommit=True) as theirs:
        for statement in (
            "SELECT pg_notify('', 'x')",
            "SELECT pg_notify(NULL, 'x')",
            f"SELECT pg_notify('{'é' * 32}', 'x')",
            f"SELECT pg_notify('{'c' * 63}', '{'x' * 7_999}')",
            f"SELECT pg_notify('c', '{'é' * 4_000}')",
            f"NOTIFY c, '{'x' * 8_000}'",
            f"NOTIFY {'c' * 80}, 'the name is truncated'",
            "NOTIFY c, 1",
            "NOTIFY",
            "LISTEN *",
            "LISTEN 'c'",
            "SELECT pg_notify('c')",
        ):
            assert done(ours, statement) == done(theirs, statement), statement
    ours.execute("CREATE TABLE named (name text)")
    with pytest.raises(errors.FeatureNotSupported, match=r"pg_notify\(\) is not supported in a query"):
        ours.execute("SELECT pg_notify('c', name) FROM named")


def test_idle_sessions_are_notified_after_the_commit(connect: Connect) -> None:
    """A listener that is notified finds what the transaction has written."""
    ours, other = connect(), connect()
    other.execute("CREATE TABLE written (a int); LISTEN changes")
    for a in range(20):
        with ours.transaction():
            ours.execute("INSERT INTO written VALUES (%s)", [a])
            ours.execute("SELECT pg_notify('changes', %s)", [str(a)])
            assert not list(other.notifies(timeout=0, stop_after=1))
        (notify,) = other.notifies(timeout=10, stop_after=1)
        assert (notify.channel, notify.payload, notify.pid) == ("changes", str(a), ours.info.backend_pid)
        assert other.execute("SELECT max(a), count(*) FROM written WHERE a = %s", [a]).fetchone() == (a, 1)
    ours.execute("NOTIFY changes, '1'; NOTIFY changes, '2'; NOTIFY changes, '1'")
    assert [notify.payload for notify in other.notifies(timeout=10, stop_after=2)] == ["1", "2"]
    other.execute("BEGIN")
    ours.execute("NOTIFY changes, '3'")
    assert not list(other.notifies(timeout=0.2)), "not inside a transaction"
    inbox = Inbox(other)
    other.execute("COMMIT")
    assert [payload for _, payload, _ in inbox.received] == ["3"]


def test_a_database_has_its_own_channels(dsn: str, connect: Connect) -> None:
    ours = connect()
    ours.execute("LISTEN c")
    with psycopg.connect(dsn, autocommit=True, dbname="materialize") as elsewhere:
        elsewhere.execute("NOTIFY c, 'elsewhere'")
    ours.execute("NOTIFY c, 'here'")
    assert [notify.payload for notify in ours.notifies(timeout=10, stop_after=1)] == ["here"]


def test_a_transaction_and_a_session_have_limits(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "NOTIFICATIONS_MAX", 3)
    monkeypatch.setattr(listening, "CHANNELS_MAX", 2)
    ours = connect()
    with pytest.raises(errors.ProgramLimitExceeded, match="too many notifications in the NOTIFY queue"):
        ours.execute("NOTIFY a, '1'; NOTIFY a, '2'; NOTIFY a, '3'; NOTIFY a, '3'; NOTIFY a, '4'")
    ours.execute("LISTEN a")
    ours.execute("LISTEN b")
    with pytest.raises(errors.ProgramLimitExceeded, match="too many channels"):
        ours.execute("LISTEN c")
    ours.execute("UNLISTEN a")
    ours.execute("LISTEN c")


def test_a_session_that_keeps_its_transaction_open_ends(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if it has left the transaction before the notifications are too many: then it receives all of them."""
    monkeypatch.setattr(notification_sender, "UNSENT_BYTES_MAX", 1_000_000)
    ours, other = connect(), connect()
    for count in (100, 200):
        other.execute("LISTEN c")
        other.execute("BEGIN")
        with ours.transaction():
            for number in range(count):
                ours.execute("SELECT pg_notify('c', %s)", [f"{number:05}" + "x" * 7_000])
        if count == 100:
            inbox = Inbox(other)
            other.execute("COMMIT")
            received = [*(payload for _, payload, _ in inbox.received)]
            other._notify_handlers.clear()
            if missing := count - len(received):
                received += [n.payload for n in other.notifies(timeout=10, stop_after=missing)]
            assert [int(payload[:5]) for payload in received] == [*range(count)]
    with pytest.raises(errors.OutOfMemory, match="notifications were not received"):
        other.execute("COMMIT")
    assert other.closed


async def test_a_listener_of_asyncpg(dsn: str) -> None:
    received: asyncio.Queue[tuple[int, str, object]] = asyncio.Queue()
    async with asyncpg.create_pool(dsn, min_size=2, max_size=2) as pool, pool.acquire() as ours:

        def put(_: Any, process_id: int, channel: str, payload: object) -> None:
            received.put_nowait((process_id, channel, payload))

        async with pool.acquire() as other:
            await other.add_listener("Jobs", put)
            await ours.execute("""NOTIFY "Jobs", 'one'""")
            await other.execute("SELECT pg_notify($1, $2)", "Jobs", "own")
            expected = [(ours.get_server_pid(), "Jobs", "one"), (other.get_server_pid(), "Jobs", "own")]
            assert [await asyncio.wait_for(received.get(), HANG_S) for _ in expected] == expected
            await other.remove_listener("Jobs", put)
        await ours.execute("""NOTIFY "Jobs", 'nobody listens'""")
        assert received.empty()


def test_psql_prints_notifications(dsn: str) -> None:
    script = "LISTEN virtual;\nNOTIFY virtual;\nNOTIFY virtual, 'This is the payload';\n"
    psql = subprocess.run(
        [str(binaries() / "psql"), "-X", dsn], input=script, capture_output=True, text=True, check=True
    )
    lines = psql.stdout.splitlines()
    assert lines[:2] == ["LISTEN", "NOTIFY"]
    assert lines[2].startswith('Asynchronous notification "virtual" received from server process with PID ')
    assert lines[4].startswith('Asynchronous notification "virtual" with payload "This is the payload" received')


def test_the_channels_of_a_session_are_listed(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        assert connection.execute("SELECT pg_listening_channels()").fetchall() == []
        connection.execute('LISTEN first; LISTEN "Second one"; LISTEN first')
        assert connection.execute("SELECT pg_listening_channels()").fetchall() == [("first",), ("Second one",)]
        connection.execute("UNLISTEN first")
        found = connection.execute("SELECT c FROM pg_listening_channels() AS c").fetchall()
        assert found == [("Second one",)]
        connection.execute("UNLISTEN *")
        assert connection.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
