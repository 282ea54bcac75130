"""The HTTP port under hostile clients: foreign host names, malformed headers, idle connections, slow readers."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from server.http.port import CONNECTIONS_MAX, LINE_BYTES_MAX
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.execution.test_large_snapshot import anonymous_kib

pytestmark = pytest.mark.attacks

GROWTH_MIB = 32
ROUNDS = 300


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = server_without_spark(tmp_path)
    yield server
    assert server.stop() == 0


def answer(server: ServerProcess, request: bytes) -> bytes:
    """All bytes until the server closes the connection, or those received before it resets it."""
    seen = b""
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=20) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
            while data := client.recv(1 << 16):
                seen += data
    return seen


def serves(server: ServerProcess) -> None:
    """Both ports answer."""
    with urlopen(f"http://127.0.0.1:{server.http_port}/healthz", timeout=20) as response:
        assert response.status == 200
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_foreign_host_name_is_refused(own_server: ServerProcess) -> None:
    """Requests as a browser sends them after DNS rebinding, and headers that may confuse a parser."""
    for path in (b"/metrics", b"/healthz", b"/readyz", b"/nothing"):
        for hosts in (
            b"Host: rebound.example",
            b"Host: rebound.example:%d" % own_server.http_port,
            b"host:rebound.example",
            b"HOST :  rebound.example",
            b"Host: localhost\r\nHost: rebound.example",
            b"Host: rebound.example\r\nHost: localhost",
            b"Host: localhost, rebound.example",
            b"Host: localhost rebound.example",
            b"Host: localhost\t.rebound.example",
            b"Host: 127.0.0.1.rebound.example",
            b"Host: rebound.example\r\nX-Forwarded-Host: localhost",
            b"Host: [::1",
            b"Host: \xff\xfe",
        ):
            for version in (b"1.0", b"1.1"):
                shown = answer(own_server, b"GET " + path + b" HTTP/" + version + b"\r\n" + hosts + b"\r\n\r\n")
                assert shown.split()[1] in (b"400", b"403"), (hosts, shown)
                assert b"tidewire_" not in shown
    serves(own_server)


@pytest.mark.long
def test_no_bytes_stop_the_server(own_server: ServerProcess) -> None:
    choose = random.Random(1)
    parts = (
        b"GET ",
        b"/metrics",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b"\0",
        b"Host: localhost",
        b"\xff" * 9,
        b":",
        b"A" * 99,
    )
    serves(own_server)
    loaded_kib = anonymous_kib(own_server.process.pid)
    for _ in range(ROUNDS):
        request = b"".join(choose.choice(parts) for _ in range(choose.randrange(12))) + b"\r\n\r\n"
        shown = answer(own_server, request)
        assert not shown or shown.startswith(b"HTTP/1."), (request, shown)
    for _ in range(20):
        answer(own_server, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 64 * LINE_BYTES_MAX)
    serves(own_server)
    assert anonymous_kib(own_server.process.pid) - loaded_kib < GROWTH_MIB * 1024
    assert '"level": "error"' not in own_server.log_path.read_text()


def test_idle_connections_occupy_the_port_for_a_limited_time(own_server: ServerProcess) -> None:
    """They are closed when a request takes too long. Clients of the SQL port are not affected."""
    idle = [socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) for _ in range(CONNECTIONS_MAX)]
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for client in idle:
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""
        client.close()
    serves(own_server)
