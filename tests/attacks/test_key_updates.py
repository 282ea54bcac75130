"""KeyUpdate messages of TLS 1.3 without end: each costs the server new keys, and most request an answer."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import socket
import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.attacks.clients import resident_bytes, watched
from tests.attacks.fake_postgres import READY
from tests.attacks.test_http_disconnects import sessions
from tests.fix_server import ServerProcess
from tests.polling import until

LIBSSL = ctypes.util.find_library("ssl")
pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(LIBSSL is None or not LIBSSL.startswith("libssl.so.3"), reason="needs OpenSSL 3"),
]

SSL_REQUEST = struct.pack(">II", 8, 80_877_103)
UPDATES = 20_000
UPDATES_OF_A_LONG_CONNECTION = 200  # a client begins one after many gigabytes
GROWTH_MAX = 3 << 20
PAUSE_MAX_S = 0.1


@pytest.fixture(scope="module")
def server(tls_server: ServerProcess) -> ServerProcess:
    with psycopg.connect(tls_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE quiet (n int)")
    return tls_server


class KeyUpdater:
    """A TLS 1.3 client that can update its keys, which the module `ssl` cannot. It never reads more than it must."""

    def __init__(self, connected: socket.socket) -> None:
        assert LIBSSL is not None
        self._library = library = ctypes.CDLL(LIBSSL)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        context = library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method()))
        self._tls = ctypes.c_void_p(library.SSL_new(ctypes.c_void_p(context)))
        library.SSL_CTX_free(ctypes.c_void_p(context))
        connected.setblocking(True)
        library.SSL_set_fd(self._tls, connected.fileno())
        assert library.SSL_connect(self._tls) == 1

    def write(self, data: bytes) -> bool:
        """Returns whether the connection was open."""
        return bool(self._library.SSL_write(self._tls, data, len(data)) == len(data))

    def read(self) -> bytes:
        """Returns what was received; nothing if the connection has ended."""
        data = ctypes.create_string_buffer(16_384)
        count = self._library.SSL_read(self._tls, data, len(data))
        return data.raw[: max(0, count)]

    def update_keys(self, *, requested: bool) -> bool:
        """Sends new keys, and requests those of the server. Returns whether the connection was open."""
        return bool(
            self._library.SSL_key_update(self._tls, int(requested)) == 1
            and self._library.SSL_do_handshake(self._tls) == 1
        )

    def close(self) -> None:
        self._library.SSL_free(self._tls)


@contextlib.contextmanager
def key_updater(server: ServerProcess, *, http: bool) -> Iterator[KeyUpdater]:
    with socket.socket() as connected:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.connect(("127.0.0.1", server.http_port if http else server.port))
        if not http:
            connected.sendall(SSL_REQUEST)
            assert connected.recv(1) == b"S"
        with contextlib.closing(KeyUpdater(connected)) as client:
            yield client


STREAM = b"GET /api/subscribe?query=quiet HTTP/1.1\r\nHost: localhost\r\n\r\n"


def begin(client: KeyUpdater, *, http: bool) -> None:
    """Begins a session that lasts."""
    assert client.write(STREAM if http else StartupMessage({"user": "materialize"}).serialize())
    if http:
        assert client.read()
    else:
        until_ready(client)


def until_ready(client: KeyUpdater) -> None:
    received = b""
    while not received.endswith(READY):
        part = client.read()
        assert part, received
        received += part


@pytest.mark.parametrize("http", [False, True], ids=["sql", "http"])
@pytest.mark.parametrize("requested", [True, False], ids=["with answers", "without answers"])
def test_key_updates_without_end(
    server: ServerProcess, connection: psycopg.Connection[Any], requested: bool, http: bool
) -> None:
    """The client reads no answers."""
    before, memory = sessions(connection), resident_bytes(server.process.pid)
    with watched(server, PAUSE_MAX_S), key_updater(server, http=http) as client:
        begin(client, http=http)
        sent = 0
        while sent < UPDATES and client.update_keys(requested=requested):
            sent += 1
        assert sent < UPDATES
        assert resident_bytes(server.process.pid) - memory < GROWTH_MAX
    until(lambda: sessions(connection) == before, 20)


@pytest.mark.parametrize("requested", [True, False], ids=["with answers", "without answers"])
def test_a_session_continues_with_new_keys(server: ServerProcess, requested: bool) -> None:
    with key_updater(server, http=False) as client:
        begin(client, http=False)
        for _ in range(UPDATES_OF_A_LONG_CONNECTION):
            assert client.update_keys(requested=requested)
            assert client.write(Query("SELECT 1").serialize())
            until_ready(client)
