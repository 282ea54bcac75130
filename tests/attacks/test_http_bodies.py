"""Bodies of HTTP requests that are large, slow, abandoned, or expensive to parse, on many connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from server.frontend.half_open import SLOW_S
from server.http.port import CONNECTIONS_MAX
from server.http.request_limits import BODIES_BYTES_MAX, BODY_BYTES_MAX
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.server.http.fix_api import Api

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024


@pytest.fixture
def api(own_server: ServerProcess) -> Api:
    return Api(own_server.http_port)


def begun(server: ServerProcess, length: int, body: bytes) -> socket.socket:
    """A request with the beginning of its body, which has the stated length."""
    client = socket.create_connection(("127.0.0.1", server.http_port), timeout=20)
    head = "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with contextlib.suppress(ConnectionError):
        client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
    return client


@contextlib.contextmanager
def bounded(server: ServerProcess, growth_max: int) -> Iterator[None]:
    """Fails if the server has more than so many bytes more at any time in the block, or if other sessions wait."""
    before, greatest = resident_bytes(server.process.pid), 0

    def sample(done: threading.Event) -> None:
        nonlocal greatest
        while not done.wait(0.02):
            greatest = max(greatest, resident_bytes(server.process.pid))

    with watched(server), meanwhile(sample):
        yield
    grown = greatest - before
    assert grown < growth_max, f"{grown / MIB:.0f} MiB"


def test_large_bodies_without_an_end(own_server: ServerProcess, api: Api) -> None:
    """The largest ones are ended, so that other requests have room."""
    number = 3 * BODIES_BYTES_MAX // BODY_BYTES_MAX
    complete = b'{"query": "SELECT 1"' + b" " * (BODY_BYTES_MAX // 2) + b"}"
    with bounded(own_server, BODIES_BYTES_MAX + 128 * MIB):
        clients = []
        for _ in range(number):
            clients.append(begun(own_server, BODY_BYTES_MAX, b" " * (BODY_BYTES_MAX - 1)))
            assert api.rows("SELECT 1") == [[1]]
        time.sleep(SLOW_S)
        assert api.post(complete).json["results"][0]["rows"] == [[1]]
    for client in clients:
        client.close()


def test_slow_bodies_do_not_occupy_the_port(own_server: ServerProcess, api: Api) -> None:
    """Without a session they count as connections. Beyond the limit, those that have taken the longest are closed."""
    clients = []
    with watched(own_server):
        for _ in range(3):
            clients += [begun(own_server, 1_000, b"{") for _ in range(CONNECTIONS_MAX)]
            time.sleep(SLOW_S + 0.2)
            assert api.rows("SELECT 1") == [[1]]
    closed = 0
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            with contextlib.suppress(ConnectionError):
                client.recv(1)
            closed += 1
        client.close()
    assert len(clients) - closed <= CONNECTIONS_MAX


def test_abandoned_bodies_are_not_parsed(own_server: ServerProcess, api: Api) -> None:
    """A client that disconnects leaves no work: at most the body that is being parsed."""
    body = b'{"query": "SELECT 1", "parameters": ["' + b"\\u0041" * (BODY_BYTES_MAX // 6 - 100) + b'"]}'
    with bounded(own_server, BODIES_BYTES_MAX + 256 * MIB):
        for _ in range(60):
            begun(own_server, len(body), body).close()
        assert api.post(body[:1_000_002] + b'"]}').status == 400


@pytest.mark.parametrize("element", [b"[],", b"{},", b"1,", b'"",', b"[[],[]],", b'{"a":1},'])
def test_bodies_with_millions_of_values_are_refused(own_server: ServerProcess, api: Api, element: bytes) -> None:
    """While it parses them, json would hold Python's global lock for seconds, and each takes dozens of bytes."""
    start, end = b'{"query": "SELECT 1", "parameters": [[', b"1]]}"
    body = start + element * ((BODY_BYTES_MAX - 100) // len(element)) + end
    statuses = []

    def post(_: threading.Event) -> None:
        statuses.append(api.post(body).status)

    with bounded(own_server, BODIES_BYTES_MAX + 128 * MIB), meanwhile(*[post] * 4):
        pass
    assert statuses == [413] * 4


def test_bodies_with_many_parameters_delay_no_other_session(own_server: ServerProcess, api: Api) -> None:
    statement = b'{"query": "SELECT 1", "parameters": [' + b"null," * 48_999 + b"null]}"
    body = b'{"statements": [' + b",".join([statement] * 10) + b"]}"

    def post(_: threading.Event) -> None:
        assert api.post(body).json["error"]["sqlstate"] == "08P01"  # SELECT 1 has no parameters

    with bounded(own_server, 512 * MIB), meanwhile(*[post] * 4):
        pass
