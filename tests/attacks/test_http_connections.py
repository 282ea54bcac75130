"""HTTP connections that send expensive framing: heads, chunks, ambiguous lengths, and floods over WebSockets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from server.http.port import HEAD_BYTES_MAX, HEADERS_MAX
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.polling import until
from tests.server.http.fix_api import Api

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
POST = b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b'{"query":"SELECT 1"}'
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
PING = b"\x89\x80" + bytes(4)  # masked and empty


@pytest.fixture
def api(own_server: ServerProcess) -> Api:
    api = Api(own_server.http_port)
    api.sql("DROP TABLE IF EXISTS t; CREATE TABLE t (k int, v text)")
    return api


@contextlib.contextmanager
def connected(server: ServerProcess, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as client:
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(30)
        client.connect(("127.0.0.1", server.http_port))
        yield client


def answer(client: socket.socket, *parts: bytes) -> bytes:
    """What the server sends until it closes or resets the connection."""
    seen = b""
    with contextlib.suppress(ConnectionError):
        for part in parts:
            client.sendall(part)
    with contextlib.suppress(ConnectionError):
        while data := client.recv(1 << 16):
            seen += data
    return seen


def upgrade(client: socket.socket, *headers: bytes) -> None:
    lines = (
        b"GET /api/subscribe?query=t HTTP/1.1",
        b"Host: localhost",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    )
    client.sendall(b"\r\n".join(lines) + b"\r\n\r\n")


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 20\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        b"Transfer-Encoding: chunked\r\nContent-Length: 20\r\n\r\n" + CHUNKS,
        b"Content-Length: 20\r\nContent-Length: 20\r\n\r\n" + BODY,
        b"Content-Length: 20\r\nContent-Length: 5\r\n\r\n" + BODY,
        b"Content-Length: 20, 20\r\n\r\n" + BODY,
        b"Content-Length: +20\r\n\r\n" + BODY,
        b"Content-Length: 0x14\r\n\r\n" + BODY,
        b"Content-Length: 2_0\r\n\r\n" + BODY,
        b"Transfer-Encoding: identity\r\nContent-Length: 20\r\n\r\n" + BODY,
        b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
        b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
        b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
        CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
        b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
        b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
        CHUNKED + b"\r\n0x14\r\n" + BODY + b"\r\n0\r\n\r\n",
        CHUNKED + b"\r\n-14\r\n" + BODY + b"\r\n0\r\n\r\n",
        CHUNKED + b"\r\nfffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n",
        CHUNKED + b"\r\n14\n" + BODY + b"\n0\n\n",
        b"X: a\rContent-Length: 20\r\n\r\n" + BODY,
        b"\nContent-Length: 20\r\n\r\n" + BODY,
        b"X: a\0b\r\nContent-Length: 20\r\n\r\n" + BODY,
    ],
    ids=range(22),
)
def test_ambiguous_lengths_are_refused(own_server: ServerProcess, api: Api, rest: bytes) -> None:
    """A proxy may divide such bytes into other requests than the server does (request smuggling)."""
    with connected(own_server) as client:
        seen = answer(client, POST + rest)
    assert seen.split()[1] in (b"400", b"415"), seen
    assert seen.count(b"HTTP/1.") == 1


def test_a_connection_serves_one_request(own_server: ServerProcess, api: Api) -> None:
    """What follows the first request is not taken for another one."""
    with connected(own_server) as client:
        seen = answer(client, POST + CHUNKED + b"\r\n" + CHUNKS + b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert seen.startswith(b"HTTP/1.1 200 ")
    assert seen.count(b"HTTP/1.") == 1


def test_large_heads_take_no_memory(own_server: ServerProcess, api: Api) -> None:
    """Each line and the number of lines are within their limits."""
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 16_000) for number in range(HEADERS_MAX - 4))
    before = resident_bytes(own_server.process.pid)
    with watched(own_server), contextlib.ExitStack() as opened:
        for _ in range(300):
            client = opened.enter_context(connected(own_server))
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + lines)
        grown = resident_bytes(own_server.process.pid) - before
    assert grown < 64 * MIB, f"{grown / MIB:.0f} MiB"
    for size, status in ((HEAD_BYTES_MAX - 1_000, b"200"), (HEAD_BYTES_MAX, b"431")):
        line = b"X: " + b"a" * (size // 5) + b"\r\n"
        with connected(own_server) as client:
            seen = answer(client, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line * 5 + b"\r\n")
        assert seen.split()[1] == status


def test_tiny_chunks_are_refused(own_server: ServerProcess, api: Api) -> None:
    """A body in chunks of one byte takes minutes of processor time. Larger chunks are accepted."""
    begun = time.monotonic()

    def attack(_: threading.Event) -> None:
        with connected(own_server) as client, pytest.raises(ConnectionError):
            client.sendall(POST + CHUNKED + b"\r\n")
            while time.monotonic() - begun < 30:
                client.sendall(b"1\r\n \r\n" * 100_000)

    with watched(own_server), meanwhile(*[attack] * 8):
        pass
    padded = BODY.ljust(4 * MIB)
    chunks = b"".join(b"20\r\n%b\r\n" % padded[at : at + 32] for at in range(0, len(padded), 32))
    with connected(own_server) as client:
        assert b" 200 " in answer(client, POST + CHUNKED + b"\r\n" + chunks + b"0\r\n\r\n")


def test_floods_of_pings_end_their_connection(own_server: ServerProcess, api: Api) -> None:
    """Before and after the handshake. A client may send some pings."""
    with connected(own_server) as client:
        upgrade(client)
        client.sendall(PING * 100)
        seen = b""
        while seen.count(b"\x8a\x00") < 100:
            seen += client.recv(1 << 16)
    with watched(own_server):
        for number in range(4):
            with connected(own_server) as client:
                begun = time.monotonic()
                upgrade(client)
                if number % 2:
                    client.recv(1 << 16)
                answer(client, PING * 500_000)
                assert time.monotonic() - begun < 5


def test_a_socket_that_is_not_read_is_closed(own_server: ServerProcess, api: Api) -> None:
    """A client that must not go on, and that reads nothing, does not keep its descriptor."""
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for number in range(20_000):
                copy.write_row((number, "x" * 1_000))
    descriptors = f"/proc/{own_server.process.pid}/fd"
    before = len(os.listdir(descriptors))
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(connected(own_server, 4096)) for _ in range(20)]
        for client in clients:
            upgrade(client)
        for client in clients:
            assert select.select([client], [], [], 60)[0]  # the answer has begun
        assert len(os.listdir(descriptors)) > before + len(clients) // 2  # others may have been closed meanwhile
        for client in clients:
            client.sendall(b"\x81\x81" + bytes(4) + b"x")  # a message
        until(lambda: len(os.listdir(descriptors)) <= before + 5)


def test_protocols_of_web_sockets_are_not_logged(own_server: ServerProcess, api: Api) -> None:
    """A client must not fill the disk, or write lines of its own into the log."""
    with connected(own_server) as client:
        upgrade(client, b"Sec-WebSocket-Protocol: forged" + b"d" * 8_000)
        assert b" 101 " in client.recv(1 << 16)
    assert "forged" not in own_server.log_path.read_text()
