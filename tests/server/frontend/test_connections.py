"""Connection limits and timeouts, the database of a new session, and malformed messages."""

from __future__ import annotations

import gc
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.messages.frontend import Sync
from protocol.pgwire.messages.startup import CancelRequest, SSLRequest
from protocol.pgwire.messages.wire_format import MESSAGE_BYTES_MAX
from server.frontend import client_registry
from server.frontend.constant_queries import ConstantQueries
from server.session_state.prepared import PreparedStatements
from tests.fix_server import ServerThread
from tests.server.frontend.raw_client import frame, query, raw_client

USER, DATABASE = "materialize", "materialize"


def set_system(passing_server: ServerThread, **values: str) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for name, value in values.items():
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
    passing_server.call(nobody_connected(passing_server))


async def nobody_connected(passing_server: ServerThread) -> None:
    while passing_server.app.listener.clients:
        await passing_server.app.listener.clients.wait_until_one_leaves()


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("opening", [b"", SSLRequest().serialize(), b"\0\0\0\x30\0\x03"])
def test_a_client_without_a_startup_message_is_disconnected(passing_server: ServerThread, opening: bytes) -> None:
    set_system(passing_server, authentication_timeout="1s")
    with raw_client(passing_server.port) as silent, psycopg.connect(passing_server.dsn()) as session:
        silent.send(opening)
        if opening == SSLRequest().serialize():
            assert silent.socket.recv(1) == b"N"
        assert silent.until_ready() == [("E", ("FATAL", "57014", "canceling authentication due to timeout"))]
        assert session.execute("SELECT 1").fetchone() == (1,)  # the timeout does not apply after authentication


def test_clients_beyond_max_connections_are_refused(passing_server: ServerThread) -> None:
    set_system(passing_server, max_connections="4", superuser_reserved_connections="2")
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
        with raw_client(passing_server.port) as reader:
            assert reader.start("reader", DATABASE)[-1][0] == "Z"
            with raw_client(passing_server.port) as second:
                words = "remaining connection slots are reserved for roles with the SUPERUSER attribute"
                assert second.start("reader", DATABASE) == [("E", ("FATAL", "53300", words))]
            with psycopg.connect(passing_server.dsn()), psycopg.connect(passing_server.dsn()):
                with raw_client(passing_server.port) as fifth:
                    refusal = ("FATAL", "53300", "sorry, too many clients already")
                    assert fifth.start(USER, DATABASE) == [("E", refusal)]
                with raw_client(passing_server.port) as canceling:  # CancelRequests are still read
                    canceling.send(CancelRequest(connection.info.backend_pid, 0).serialize())
                    assert canceling.until_ready() == []
    passing_server.call(nobody_connected(passing_server))
    with psycopg.connect(passing_server.dsn()) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_connections_without_a_session_are_limited(passing_server: ServerThread) -> None:
    set_system(passing_server, max_connections="4")
    with ExitStack() as stack:
        silent = [stack.enter_context(raw_client(passing_server.port)) for _ in range(9)]
        assert silent[8].until_ready() == [("E", ("FATAL", "53300", "sorry, too many clients already"))]


def test_keepalives(passing_server: ServerThread) -> None:
    set_system(passing_server, tcp_keepalives_idle="7", tcp_keepalives_count="3", tcp_user_timeout="5000")
    with psycopg.connect(passing_server.dsn()):

        async def options() -> list[int]:
            (client,) = passing_server.app.listener.clients
            sock = client._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            enabled = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return [enabled, *(sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)]

        assert passing_server.call(options()) == [1, 7, 3, 5_000]


def test_the_statements_of_an_ended_session_are_freed_at_once(passing_server: ServerThread) -> None:
    gc.collect()
    gc.disable()
    try:
        with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
            for number in range(20):
                connection.execute(f"PREPARE q{number} AS SELECT {number} FROM t".encode())
            for number in range(20):
                for _ in range(3):
                    connection.execute(f"SELECT %s::int + {number}".encode(), (1,), prepare=True)
        passing_server.call(nobody_connected(passing_server))
        kept = [named for named in gc.get_objects() if isinstance(named, PreparedStatements) and named.by_name]
        calls = [own for own in gc.get_objects() if isinstance(own, ConstantQueries) and own._calls]
        assert not kept
        assert not calls
    finally:
        gc.enable()


def test_running_out_of_file_descriptors_is_reported_and_logged(
    passing_server: ServerThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(passing_server.dsn()) as session:
        monkeypatch.setattr(client_registry, "descriptors_max", lambda: client_registry.RESERVED_DESCRIPTORS)
        refused = [("E", ("FATAL", "53300", "sorry, too many clients already"))]
        with raw_client(passing_server.port) as client:
            assert client.start(USER, DATABASE) == refused
        monkeypatch.setattr(client_registry, "descriptors_max", lambda: 1)
        with raw_client(passing_server.port) as client:
            assert client.until_ready() == refused
        assert session.execute("SELECT 1").fetchone() == (1,)
    assert capsys.readouterr().out.count("out of file descriptors") == 1


# -- databases --------------------------------------------------------------------------------------------------------


def test_without_a_database_name_the_default_database_is_used_with_a_notice(passing_server: ServerThread) -> None:
    for user, database in (("someone", None), ("someone", "someone"), ("someone", "")):
        with raw_client(passing_server.port) as client:
            messages = client.start(user, database)
            (notice,) = [body for code, body in messages if code == "N"]
            assert b'database "someone" does not exist, connected to "materialize" instead' in notice
            answer = client.exchange(query("SELECT current_database()"))
            assert b"materialize" in answer[1][1]


def test_the_default_database_is_the_one_named_like_the_user(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE someone")
    with raw_client(passing_server.port) as client:
        assert not [body for code, body in client.start("someone") if code == "N"]
        assert b"someone" in client.exchange(query("SELECT current_database()"))[1][1]


def test_an_unknown_database_is_refused(passing_server: ServerThread) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "missing" does not exist') as refusal:
        psycopg.connect(passing_server.dsn("missing"))
    assert "CREATE DATABASE" in str(refusal.value)
    with raw_client(passing_server.port) as client:
        refused = [("E", ("FATAL", "3D000", 'database "missing" does not exist'))]
        assert client.start(USER, "missing") == refused


# -- messages ---------------------------------------------------------------------------------------------------------

SYNC = Sync().serialize()
MALFORMED = {
    "a NUL in a query": frame(b"Q", b"select 1\0 \0"),
    "a query without a terminator": frame(b"Q", b"select 1"),
    "an empty query message": frame(b"Q", b""),
    "a query that is not UTF-8": frame(b"Q", b"select '\xff'\0"),
    "a NUL in a parsed query": frame(b"P", b"\0select\0 1\0\0\0") + SYNC,
    "an unknown kind of Describe": frame(b"P", b"\0select 1\0\0\0") + frame(b"D", b"X\0") + SYNC,
    "bytes after a Bind": frame(b"P", b"\0select 1\0\0\0") + frame(b"B", b"\0\0" + b"\0" * 8) + SYNC,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_session_continues_after_a_malformed_message_as_in_postgresql(
    passing_server: ServerThread, postgres: str, data: bytes
) -> None:
    answers = []
    for port, user, database in (
        (passing_server.port, USER, DATABASE),
        (urlsplit(postgres).port or 0, "postgres", "postgres"),
    ):
        with raw_client(port) as client:
            client.start(user, database)
            answers.append([*client.exchange(data), *client.exchange(query("SELECT 1"))])
    assert [message[0] for message in answers[0]] == [message[0] for message in answers[1]]
    ours, theirs = ([body for code, body in answer if code == "E"] for answer in answers)
    assert ours == theirs


def test_a_query_longer_than_the_message_limit_is_refused(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        with pytest.raises(errors.ProgramLimitExceeded, match="message is too long") as refusal:
            connection.execute(b"SELECT '" + b"x" * (MESSAGE_BYTES_MAX + 1_000_000) + b"'")
        assert refusal.value.diag.message_hint is not None
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_client_that_is_still_sending_receives_the_fatal_error(passing_server: ServerThread) -> None:
    with raw_client(passing_server.port) as client:
        client.start(USER, DATABASE)
        client.send(b"Q\x7f\xff\xff\xff" + bytes(1_000_000))
        assert client.until_ready() == [("E", ("FATAL", "08P01", "invalid message length"))]
