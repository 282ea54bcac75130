"""TLS connections to the HTTP port that are slow, incomplete, half-closed, renegotiate, or are no TLS."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from server.http.port import CONNECTIONS_MAX, REQUEST_S
from tests.attacks.clients import resident_bytes, watched
from tests.attacks.test_http_disconnects import SLEEP, descriptors, get, post, sessions
from tests.attacks.test_logins import client_hello, is_closed
from tests.fix_server import ServerProcess
from tests.polling import until

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
SLACK_S = 10.0  # on a busy machine
SPARE = 5  # descriptors that the server may have opened for itself meanwhile
GROWTH_MAX = 160 * MIB
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def server(tls_server: ServerProcess) -> ServerProcess:
    with psycopg.connect(tls_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE abandoned (a int); CREATE TABLE wide (v text)")
        with connection.cursor().copy("COPY wide FROM STDIN") as copy:
            for _ in range(20_000):
                copy.write_row(("x" * 1_000,))
    return tls_server


def connected(server: ServerProcess, receive_bytes: int = 0) -> socket.socket:
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(30)
    client.connect(("127.0.0.1", server.http_port))
    return client


def encrypted(client: socket.socket, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    return context.wrap_socket(client)


@contextlib.contextmanager
def nothing_left(server: ServerProcess, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Afterwards the server has the sessions and descriptors of before. Others did not wait, and memory is bounded."""
    before, opened, memory = sessions(connection), descriptors(server), resident_bytes(server.process.pid)
    with watched(server):
        yield
        assert resident_bytes(server.process.pid) - memory < GROWTH_MAX
    until(lambda: sessions(connection) == before, 2 * SLACK_S)
    until(lambda: descriptors(server) <= opened + SPARE, 2 * SLACK_S)


def test_slow_handshakes_are_closed(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """A byte at a time, so that there is always some progress."""
    hello = client_hello()
    with nothing_left(server, connection), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(CONNECTIONS_MAX - 10)]
        begun = time.monotonic()
        for byte in hello[: int(4 * REQUEST_S)]:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(bytes([byte]))
            time.sleep(0.3)
        assert all(is_closed(client, begun + REQUEST_S + SLACK_S) for client in clients)


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_connections_without_a_request_are_closed(
    server: ServerProcess, connection: psycopg.Connection[Any], head: bytes
) -> None:
    """The handshake is complete. The head of the request is missing, or grows by a byte at a time."""
    with nothing_left(server, connection), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(encrypted(connected(server))) for _ in range(100)]
        begun = time.monotonic()
        for client in clients:
            client.sendall(head)
        while head and time.monotonic() < begun + REQUEST_S:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b"x")
            time.sleep(0.3)
        assert all(is_closed(client, begun + REQUEST_S + SLACK_S) for client in clients)


@pytest.mark.long
def test_thousands_of_complete_handshakes(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """Those beyond the limit are closed, and the port serves others when the first ones are closed."""
    with nothing_left(server, connection), contextlib.ExitStack() as stack:
        for _ in range(2 * CONNECTIONS_MAX):
            client = stack.enter_context(connected(server))
            with contextlib.suppress(OSError):
                stack.enter_context(encrypted(client))

    def is_served() -> bool:
        with contextlib.suppress(OSError), connected(server) as client, encrypted(client) as secure:
            secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return secure.recv(1_000).startswith(b"HTTP/1.1 200 ")
        return False

    until(is_served, REQUEST_S + SLACK_S)


def _unclean(client: ssl.SSLSocket) -> None:
    client.shutdown(socket.SHUT_WR)


def _notified(client: ssl.SSLSocket) -> None:
    client.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError, OSError):
        client.unwrap()


def _closed(client: ssl.SSLSocket) -> None:
    client.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("end", [_unclean, _notified, _closed])
@pytest.mark.parametrize(
    "request_",
    [SLEEP, SLEEP + post("SELECT 2") * 1_000, get(), get(b"Content-Length: 1000000") + bytes(300_000)],
    ids=["query", "queries", "events", "events with a body"],
)
def test_statements_of_connections_that_end_are_ended(
    server: ServerProcess,
    connection: psycopg.Connection[Any],
    request_: bytes,
    end: Callable[[ssl.SSLSocket], None],
    version: ssl.TLSVersion,
) -> None:
    """Also of those of which only one direction is closed, with or without an alert."""
    with contextlib.ExitStack() as stack, nothing_left(server, connection):
        clients = []
        for _ in range(10):
            client = stack.enter_context(encrypted(connected(server), version))
            client.setblocking(False)
            with contextlib.suppress(ssl.SSLWantWriteError, OSError):
                client.send(request_)
            clients.append(client)
        time.sleep(0.3)
        for client in clients:
            with contextlib.suppress(OSError):
                end(client)


def test_slow_readers_take_bounded_memory(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """Twenty megabytes for each of them wait in the log, not in the buffers of TLS."""
    with nothing_left(server, connection), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(encrypted(connected(server, 4_096))) for _ in range(30)]
        for client in clients:
            client.sendall(post("SELECT * FROM wide"))
        for client in clients:
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("data", [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", bytes(100_000), b"\x80\x2e\x01"])
def test_other_bytes_on_the_port_with_tls(
    server: ServerProcess, connection: psycopg.Connection[Any], data: bytes
) -> None:
    with nothing_left(server, connection), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(100)]
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.sendall(data)
        end = time.monotonic() + REQUEST_S + SLACK_S
        assert all(is_closed(client, end) for client in clients)


def test_tls_on_a_port_without_it(own_server: ServerProcess) -> None:
    """A connection is closed, after an answer in plain text at most."""
    opened = descriptors(own_server)
    with watched(own_server):
        for _ in range(100):
            with connected(own_server) as client:
                client.sendall(client_hello())
                seen = b""
                with contextlib.suppress(ConnectionError):
                    while part := client.recv(1_000):
                        seen += part
                assert seen[:12] in (b"HTTP/1.1 400", b"HTTP/1.0 400"), seen
    until(lambda: descriptors(own_server) <= opened + SPARE, SLACK_S)


@needs_openssl
def test_renegotiations_are_refused(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """Each would cost the server as much as a handshake."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.http_port}", "-tls1_2", "-msg"]
    piped = subprocess.PIPE
    with (
        nothing_left(server, connection),
        subprocess.Popen(command, stdin=piped, stdout=piped, stderr=subprocess.STDOUT) as client,
    ):
        assert client.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for _ in range(200):
                client.stdin.write(b"R\n")
                client.stdin.flush()
                time.sleep(0.005)
        with contextlib.suppress(BrokenPipeError):
            seen, _ = client.communicate(timeout=REQUEST_S + SLACK_S)  # the server has closed the connection
        assert b"RENEGOTIATING" in seen
        assert seen.count(b", ServerHello\n") == 1, seen
