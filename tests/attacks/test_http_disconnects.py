"""HTTP clients that disconnect while their statement runs: it ends, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.attacks.clients import watched
from tests.attacks.test_runaway_queries import create_rows, disk_bytes
from tests.bench.processes import cpu_s, descendants
from tests.fix_server import ServerProcess
from tests.polling import until

pytestmark = pytest.mark.attacks

CLIENTS = 10
DESCRIPTORS_MAX = 5  # that the server may have opened for itself meanwhile
IDLE_S = 0.5  # of the JVM's processor time within a second, in which nothing runs


def post(query: str) -> bytes:
    body = json.dumps({"query": query}).encode()
    head = f"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def get(*headers: bytes, parameters: bytes = b"") -> bytes:
    line = b"GET /api/subscribe?query=abandoned%b HTTP/1.1" % parameters
    return b"\r\n".join((line, b"Host: localhost", *headers)) + b"\r\n\r\n"


SOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
FUTURE = b"&as_of=9000000000000000000"
SLEEP = post("SELECT pg_sleep('infinity')")
PING = b"\x89\x80" + bytes(4)  # masked and empty

REQUESTS = {
    "a query": SLEEP,
    "a wait for a lock": post("BEGIN; LOCK TABLE locked"),
    "a query and other requests": SLEEP + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000,
    "a query and another body": SLEEP + post("SELECT '" + "x" * 300_000 + "'"),
    "a query and something else": SLEEP + b"\0" * 30_000,
    "a query with an upgrade": SLEEP.replace(b"\r\n\r\n", b"\r\n" + b"\r\n".join(SOCKET) + b"\r\n\r\n", 1)
    + PING * 2_731,
    "events": get(),
    "events of the future": get(parameters=FUTURE),
    "events with a body": get(b"Content-Length: 1000000") + bytes(300_000),
    "events with chunks": get(b"Transfer-Encoding: chunked") + b"10000\r\n" + bytes(65_536) + b"\r\n",
    "a socket": get(*SOCKET),
    "a socket of the future": get(*SOCKET, parameters=FUTURE),
    "a socket and pings": get(*SOCKET, parameters=FUTURE) + PING * 1_365,
    "a socket and more pings": get(*SOCKET, parameters=FUTURE) + PING * 2_731,
    "a socket with a body": get(*SOCKET, b"Content-Length: 1000000", parameters=FUTURE) + bytes(300_000),
}


def _close(client: socket.socket) -> None:
    client.close()


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


@pytest.fixture
def sql(own_server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE abandoned (a int); CREATE TABLE locked (a int)")
        yield connection
        connection.execute("DROP TABLE abandoned, locked")


def sessions(sql: psycopg.Connection[Any]) -> int:
    ((count,),) = sql.execute("SELECT count(*) FROM pg_stat_activity").fetchall()
    return int(count)


def descriptors(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@pytest.mark.parametrize("disconnect", [_close, _reset, _half_close])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_nothing_is_left_of_a_request_whose_client_disconnects(
    own_server: ServerProcess,
    sql: psycopg.Connection[Any],
    request_: bytes,
    disconnect: Callable[[socket.socket], None],
) -> None:
    """Also if the client has sent more than the request, which nobody reads."""
    before, opened = sessions(sql), descriptors(own_server)
    with psycopg.connect(own_server.dsn) as holder, contextlib.ExitStack() as stack:
        holder.execute("LOCK TABLE locked")
        with watched(own_server):
            clients = []
            for _ in range(CLIENTS):
                client = socket.create_connection(("127.0.0.1", own_server.http_port), timeout=20)
                clients.append(stack.enter_context(contextlib.closing(client)))
                client.setblocking(False)  # the server need not take what it does not read
                with contextlib.suppress(ConnectionError):
                    client.send(request_)
            time.sleep(0.5)  # the statements wait, or have been refused
            for client in clients:
                with contextlib.suppress(OSError):
                    disconnect(client)
            until(lambda: sessions(sql) <= before + 2, 10)  # those of `holder` and `watched`
        until(lambda: descriptors(own_server) <= opened + DESCRIPTORS_MAX + CLIENTS * (disconnect is _half_close), 10)
    until(lambda: descriptors(own_server) <= opened + DESCRIPTORS_MAX, 10)
    assert sessions(sql) == before


# -- while Spark works ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server"), "--spark-memory", "1GB")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        create_rows(connection)
        connection.execute("SELECT count(*) FROM t")  # Spark has started
    yield server
    server.stop()


def jvm_cpu_s(server: ServerProcess) -> float:
    """The processor time of Spark's JVM, and of the one that writes its class archive."""
    total = 0.0
    for pid in descendants(server.process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text() == "java\n":
                total += cpu_s(pid)
    return total


def read_frontier(sql: psycopg.Connection[Any]) -> int:
    query = "SELECT f.read_frontier FROM mz_internal.mz_frontiers f JOIN mz_objects o ON o.id = f.object_id"
    ((time,),) = sql.execute(f"{query} WHERE o.name = 't'".encode()).fetchall()
    return int(time)


def is_idle(server: ServerProcess) -> bool:
    used = jvm_cpu_s(server)
    time.sleep(1)
    return jvm_cpu_s(server) - used < IDLE_S


def _computing(server: ServerProcess, _: list[socket.socket]) -> None:
    used = jvm_cpu_s(server)
    until(lambda: jvm_cpu_s(server) - used > 2)


def _planning(server: ServerProcess, _: list[socket.socket]) -> None:
    time.sleep(0.2)


def _answering(_: ServerProcess, clients: list[socket.socket]) -> None:
    for client in clients:
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("query", "await_phase"),
    [
        ("SELECT count(*) FROM t a, t b WHERE a.n + b.n < 0", _computing),
        ("SELECT count(*) FROM t WHERE n IN (" + "1," * 100_000 + "1)", _planning),
        ("SELECT n, repeat(v, 50) FROM t", _answering),
    ],
    ids=["computing", "planning", "answering"],
)
def test_jobs_end_when_their_clients_disconnect(
    spark_server: ServerProcess, query: str, await_phase: Callable[[ServerProcess, list[socket.socket]], None]
) -> None:
    """Jobs end, sessions of Spark can be used by others, and nothing holds the history of the table."""
    server = spark_server
    with psycopg.connect(server.dsn, autocommit=True) as sql:
        until(lambda: is_idle(server), 60)
        before, opened, stored = sessions(sql), descriptors(server), disk_bytes(server.directory)
        with watched(server), contextlib.ExitStack() as stack:
            clients = []
            for _ in range(CLIENTS):
                client = socket.socket()
                stack.enter_context(contextlib.closing(client))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(120)
                client.connect(("127.0.0.1", server.http_port))
                client.sendall(post(query))
                clients.append(client)
            await_phase(server, clients)
            for client in clients:
                client.close()
            until(lambda: sessions(sql) <= before + 1, 20)
        until(lambda: is_idle(server), 60)
        sql.execute("INSERT INTO t VALUES (-1, 'marker')")
        ((inserted,),) = sql.execute("SELECT mz_now()").fetchall()
        until(lambda: read_frontier(sql) >= int(inserted), 30)
        until(lambda: descriptors(server) <= opened + DESCRIPTORS_MAX, 30)
        until(lambda: disk_bytes(server.directory) <= stored + (8 << 20), 30)
        for number in range(CLIENTS):
            rows = sql.execute("SELECT count(*) FROM t WHERE n < %s", [number]).fetchall()
            assert rows[0][0] >= number + 1
        sql.execute("DELETE FROM t WHERE n = -1")
