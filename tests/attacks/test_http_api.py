"""The HTTP API under hostile clients: oversized and slow bodies, floods of connections and messages, slow readers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator

import aiohttp
import psycopg
import pytest

from server.frontend.client import WRITE_HIGH_BYTES
from server.frontend.half_open import SLOW_S
from server.http.port import CONNECTIONS_MAX
from server.http.request_limits import BODY_BYTES_MAX
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.server.http.fix_api import Api

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024


@pytest.fixture
def api(own_server: ServerProcess) -> Api:
    api = Api(own_server.http_port)
    api.sql("DROP TABLE IF EXISTS t; CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, 'a')")
    return api


def head(length: int, path: str = "/api/sql") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def sessions(own_server: ServerProcess) -> int:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        return len(connection.execute("SELECT id FROM mz_internal.mz_sessions").fetchall()) - 1


def until_no_session(own_server: ServerProcess) -> None:
    deadline = time.monotonic() + 20
    while sessions(own_server):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_oversized_bodies(own_server: ServerProcess, api: Api) -> None:
    """They are refused without being kept, whether their length is stated or not."""
    before = resident_bytes(own_server.process.pid)
    with watched(own_server):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) as client:
                client.sendall(head(1 << 40))
                assert b" 413 " in client.recv(4096)
            with socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) as client:
                client.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
                chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
                with contextlib.suppress(ConnectionError):
                    for _ in range(2 * BODY_BYTES_MAX // (1 << 20)):
                        client.sendall(chunk)
                    assert b" 413 " in client.recv(4096)
    assert resident_bytes(own_server.process.pid) - before < 3 * BODY_BYTES_MAX + 64 * MIB
    assert api.rows("SELECT k FROM t") == [[1]]


@pytest.mark.long
def test_expensive_bodies(own_server: ServerProcess, api: Api) -> None:
    """Long and deeply nested JSON, many statements, and texts that are long to parse do not delay others."""
    with watched(own_server):
        for body in (
            b"[" * (BODY_BYTES_MAX - 1),
            b'{"query": "SELECT 1", "parameters": [' + b"1," * 4_000_000 + b"1]}",
            b'{"query": "' + b"(" * 1_000_000 + b'"}',
            b'{"query": "' + b"SELECT 1;" * 20_000 + b'"}',
            b'{"statements": [' + b'{"query": "SELECT 1"},' * 1_000 + b'{"query": "SELECT 1"}]}',
        ):
            assert api.post(body).status in (200, 400, 413)


def test_slow_and_incomplete_requests(own_server: ServerProcess, api: Api) -> None:
    """Slow loris: heads that never end are closed after five seconds. Others are served meanwhile."""
    slow = [socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) for _ in range(200)]
    for client in slow:
        client.sendall(b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nX-")
    bodies = [socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) for _ in range(100)]
    for client in bodies:
        client.sendall(head(1000) + b"{")
    with watched(own_server):
        for _ in range(12):
            for client in slow:
                with contextlib.suppress(ConnectionError):
                    client.sendall(b"x")
            assert api.rows("SELECT k FROM t") == [[1]]
            time.sleep(0.5)
    for client in slow:
        with contextlib.suppress(ConnectionError):
            assert client.recv(100) == b""
        client.close()
    assert sessions(own_server) == 0  # none before the body is complete
    for client in bodies:
        client.close()


def test_thousands_of_idle_connections(own_server: ServerProcess, api: Api) -> None:
    """Those beyond the limit are closed at once, the others after five seconds. Sessions of the SQL port work."""
    before = resident_bytes(own_server.process.pid)
    idle = [socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20) for _ in range(3_000)]
    with watched_sql(own_server):
        deadline = time.monotonic() + 20
        for client in idle:
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
            client.close()
        assert time.monotonic() < deadline
    assert resident_bytes(own_server.process.pid) - before < 64 * MIB
    assert api.rows("SELECT k FROM t") == [[1]]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", head(1_000)], ids=["nothing", "a head", "a body"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_idle_connections_do_not_occupy_the_port(
    own_server: ServerProcess, api: Api, address: str, sent: bytes
) -> None:
    """An attacker that occupies all connections, and opens others when they are closed, loses those that are slow."""

    def attack(done: threading.Event) -> None:
        clients: deque[socket.socket] = deque()
        while not done.is_set():
            with contextlib.suppress(ConnectionError):
                clients.append(socket.create_connection(("127.0.0.1", own_server.http_port), 20, (address, 0)))
                clients[-1].sendall(sent)
            if len(clients) > CONNECTIONS_MAX + 100:
                clients.popleft().close()
                time.sleep(0.01)
        for client in clients:
            client.close()

    with watched(own_server), meanwhile(attack):
        time.sleep(SLOW_S + 1)
        for _ in range(20):
            assert api.request("GET", "/readyz").status in (200, 503)
            assert api.rows("SELECT k FROM t") == [[1]]
            time.sleep(0.1)


@contextlib.contextmanager
def watched_sql(server: ServerProcess) -> Iterator[None]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield
        begun = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - begun < 1


def test_connections_with_a_session_do_not_exhaust_the_others(own_server: ServerProcess, api: Api) -> None:
    streams = [api.events("t") for _ in range(CONNECTIONS_MAX + 100)]
    assert {stream.status for stream in streams} == {200}
    assert sessions(own_server) == len(streams)
    assert api.rows("SELECT k FROM t") == [[1]]
    for stream in streams:
        stream.close()
    until_no_session(own_server)


def test_slow_readers_of_subscriptions(own_server: ServerProcess, api: Api) -> None:
    """A browser that does not read costs a bounded amount of memory, and its subscription ends. Others continue."""
    api.sql("ALTER SYSTEM SET subscription_waiting_bytes_max = 4000000")
    slow = []
    for _ in range(20):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", own_server.http_port))
        client.sendall(b"GET /api/subscribe?query=t HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.append(client)
    while sessions(own_server) < len(slow):
        time.sleep(0.05)
    before = resident_bytes(own_server.process.pid)
    with watched(own_server), psycopg.connect(own_server.dsn, autocommit=True) as connection:
        for number in range(40):
            with connection.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write(b"".join(b"%d\t%s\n" % (number, os.urandom(500).hex().encode()) for _ in range(1_000)))
    grown = resident_bytes(own_server.process.pid) - before
    assert grown < 200 * MIB + len(slow) * (2 * WRITE_HIGH_BYTES + MIB), f"{grown / MIB:.0f} MiB"
    until_no_session(own_server)
    for client in slow:
        client.close()


def test_slow_readers_of_results(own_server: ServerProcess, api: Api) -> None:
    """A result that is not read is not in memory: its session waits, and ends with the connection."""
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for number in range(20_000):
                copy.write_row((number, "x" * 2_000))
    api.rows("SELECT k FROM t")
    before = resident_bytes(own_server.process.pid)
    slow = []
    query = b'{"query": "SELECT * FROM t"}'
    for _ in range(20):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", own_server.http_port))
        client.sendall(head(len(query)) + query)
        slow.append(client)
    time.sleep(3)
    grown = resident_bytes(own_server.process.pid) - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"  # 20 answers have 800 MB
    assert sessions(own_server) == len(slow)
    for client in slow:
        client.close()
    until_no_session(own_server)


async def upgraded(server: ServerProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket whose frames the test writes itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(
        b"GET /api/subscribe?query=t HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def frame(first: int, payload: bytes, length: int | None = None) -> bytes:
    """A masked frame of a client, with a mask of zeros. `length`: the stated one."""
    stated = len(payload) if length is None else length
    return bytes((first, 0x80 | 127)) + struct.pack(">Q", stated) + bytes(4) + payload


@pytest.mark.parametrize(
    "data",
    [
        frame(0x81, b"x" * 100),
        frame(0x82, b"x" * (1 << 20)),
        frame(0x81, b"", length=1 << 62),
        frame(0x01, b"x" * 100) + frame(0x00, b"x" * 100) * 10_000,
        frame(0x01, b"x") + frame(0x00, b"") * 100_000,
        frame(0x89, b"ping", length=4) * 100_000 + frame(0x81, b"x"),
        frame(0xC1, b"x" * 100),
        frame(0x83, b"x"),
        b"\x81\x05hello",
        bytes(100_000),
        random.Random(1).randbytes(100_000),
    ],
    ids=range(11),
)
def test_messages_over_web_sockets(own_server: ServerProcess, api: Api, data: bytes) -> None:
    """Large, endless, fragmented, unmasked and random frames end the connection, and cost bounded memory."""

    async def attack() -> None:
        reader, writer = await upgraded(own_server)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                async with asyncio.timeout(12):
                    while await reader.read(1 << 16):
                        pass
        finally:
            writer.transport.abort()

    before = resident_bytes(own_server.process.pid)
    with watched(own_server):
        try:
            asyncio.run(attack())
        except TimeoutError:
            assert data[0] == 0x01  # fragments that stay small are no message yet
    until_no_session(own_server)
    assert resident_bytes(own_server.process.pid) - before < 32 * MIB


def test_pages_of_other_origins(own_server: ServerProcess, api: Api) -> None:
    """Cross-site requests, WebSockets and rebound names neither read nor write."""

    async def attack() -> None:
        url = f"http://127.0.0.1:{own_server.http_port}"
        async with aiohttp.ClientSession() as client:
            for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{api.port}", ""):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await client.ws_connect(f"{url}/api/subscribe?query=t", origin=origin)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await client.ws_connect(f"{url}/api/subscribe?query=t", headers={"Host": "rebound.example"})

    asyncio.run(attack())
    insert = {"query": "INSERT INTO t VALUES (2, 'b')"}
    for type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert api.post(insert, Content_Type=type).status == 415  # what a form can send without a preflight request
    assert api.post(insert, Host="rebound.example").status == 403
    assert api.post(insert, Origin="http://evil.example").status == 403
    assert api.rows("SELECT k FROM t") == [[1]]
