"""The HTTP port: its pages, the metrics, and the requests that it refuses."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from psycopg import errors

from server.http.port import CONNECTIONS_MAX, HEADERS_MAX, LINE_BYTES_MAX, HttpPort, Route
from server.http.responses import text_response
from tests.fix_server import ServerProcess, ServerThread, server_without_spark
from tests.polling import HANG_S, until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Returns status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def raw(port: int, request: bytes) -> bytes:
    """Sends a request, and returns all bytes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        client.settimeout(10)
        answer = b""
        while piece := client.recv(65_536):
            answer += piece
        return answer


def scrape(port: int) -> Samples:
    status, _, text = ask(port, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Change:
    """The changes of a server's metrics since this object was created."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._before = scrape(port)

    def of(self, name: str, /, **labels: str) -> float:
        key = name, tuple(sorted(labels.items()))
        return scrape(self._port).get(key, 0.0) - self._before.get(key, 0.0)


# -- the port itself ----------------------------------------------------------------------------------------------


@pytest.fixture
async def pages() -> Any:
    async def hello(_: web.Request) -> web.Response:
        return text_response(200, "hello")

    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("a bug")

    port = HttpPort([Route("/hello", hello), Route("/broken", broken)], host_names=["Metrics.Example"])
    _, number = await port.listen("127.0.0.1", 0)
    yield number
    await port.close()


async def exchange(port: int, request: bytes) -> bytes:
    return await asyncio.to_thread(raw, port, request)


async def test_a_page_is_sent_and_the_connection_closed(pages: int) -> None:
    answer = await exchange(pages, b"GET /hello?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 6" in head
    assert b"Connection: close" in head
    assert b"aiohttp" not in head
    assert body == b"hello\n"


async def test_head_has_no_body(pages: int) -> None:
    answer = await exchange(pages, b"HEAD /hello HTTP/1.0\r\n\r\n")
    assert b"Content-Length: 6" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n", b"500"),
        (b"GET /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f\r\n\r\n", b"400"),
        (b"GET hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello SPDY/9\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * LINE_BYTES_MAX * 2 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * LINE_BYTES_MAX * 2 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * HEADERS_MAX + b"\r\n", b"400"),
        (b"GET http://localhost/hello HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
    ],
)
async def test_invalid_requests_are_refused(pages: int, request_: bytes, status: bytes) -> None:
    assert (await exchange(pages, request_)).split()[1] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:6876", b"200"),
        (b"LOCALHOST.", b"200"),
        (b"tidewire.localhost", b"200"),
        (b"127.0.0.1:6876", b"200"),
        (b"[::1]:6876", b"200"),
        (b"192.0.2.1", b"200"),  # an address, which needs no DNS
        (b"metrics.example:6876", b"200"),
        (b"rebound.example", b"403"),
        (b"rebound.example:6876", b"403"),
        (b"localhost.rebound.example", b"403"),
        (b"127.0.0.1.rebound.example", b"403"),
        (b"notlocalhost", b"403"),
        (b"0x7f.1", b"403"),
        (b"localhost@rebound.example", b"403"),
        (b"", b"403"),
    ],
)
async def test_only_names_of_the_server_are_answered(pages: int, host: bytes, status: bytes) -> None:
    """DNS rebinding: a page from another name for the server's address must not read the response."""
    answer = await exchange(pages, b"GET /hello HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert answer.split()[1] == status
    assert (b"hello\n" in answer) is (status == b"200")


@pytest.mark.parametrize("request_", [b"GET /hello\r\n\r\n", b"GET /hello HTTP/0.9\r\nHost: localhost\r\n\r\n"])
async def test_requests_without_headers_are_refused(pages: int, request_: bytes) -> None:
    assert b"hello" not in await exchange(pages, request_)


async def test_an_incomplete_request_times_out(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.port.REQUEST_S", 0.05)
    assert await exchange(pages, b"GET /hello HTTP/1.1\r\n") == b""


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    served: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

    async def large(request: web.Request) -> web.Response:
        served.set_result(request.task)
        return web.Response(body=bytes(64 << 20))

    monkeypatch.setattr("server.http.port.ANSWER_S", 0.05)
    port = HttpPort([Route("/large", large)])
    with socket.create_connection(await port.listen("127.0.0.1", 0)) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(HANG_S):
            await asyncio.wait([await served])
    await port.close()


async def test_close_ends_requests_in_progress() -> None:
    started = asyncio.Event()

    async def endless(_: web.Request) -> web.Response:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    port = HttpPort([Route("/endless", endless)])
    _, number = await port.listen("127.0.0.1", 0)
    answer = asyncio.create_task(exchange(number, b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    await started.wait()
    await port.close()
    assert await answer == b""


async def test_the_number_of_idle_connections_is_limited(pages: int) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", pages) for _ in range(CONNECTIONS_MAX)]
    reader, writer = await asyncio.open_connection("127.0.0.1", pages)
    with pytest.raises(ConnectionError):
        assert await reader.read() == b""
        raise ConnectionError  # closed rather than reset, which is correct, too
    for _, other in [*idle, (reader, writer)]:
        other.close()


# -- the server -----------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_the_server_is_ready_when_spark_is(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    try:
        assert ask(server.http_port, "/healthz")[::2] == (200, "ok\n")
        status, _, text = ask(server.http_port, "/readyz")
        assert (status, "Spark is starting" in text) == (503, True)
        assert scrape(server.http_port)["tidewire_spark_ready", ()] == 0
        server.await_event("Spark ready")
        assert ask(server.http_port, "/readyz")[::2] == (200, "ready\n")
        samples = scrape(server.http_port)
        assert samples["tidewire_spark_ready", ()] == 1
        assert samples["tidewire_spark_resident_memory_bytes", ()] > 10_000_000
    finally:
        assert server.stop() == 0


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server", "serve", "--listen", "127.0.0.1:0", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )


@pytest.mark.slow
def test_a_busy_port_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve("--http-listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert f"could not listen on 127.0.0.1:{port} for HTTP" in done.stderr
    assert "HINT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_remotely_reachable_address_requires_authentication(tmp_path: Path) -> None:
    done = serve("--http-listen", "0.0.0.0:0", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "0.0.0.0:0 can be reached from other machines" in done.stderr
    assert "--auth scram-sha-256 or --hba-file" in done.stderr


@pytest.mark.crash
def test_the_http_port_can_be_disabled(tmp_path: Path) -> None:
    server = server_without_spark(tmp_path, "--http-listen", "")
    assert server.http_port == 0
    assert server.stop() == 0


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v text)")
        yield connection


class TestMetrics:
    def test_names_and_help(self, server: ServerThread) -> None:
        _, content_type, text = ask(server.http_port, "/metrics")
        assert content_type.startswith("text/plain; version=0.0.4")
        names = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
        assert names == set(re.findall(r"^# HELP (\w+) \S", text, re.MULTILINE))
        assert "process_resident_memory_bytes" in names
        page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
        assert {name for name in names if name.startswith("tidewire_") and f"`{name}" not in page} == set()

    @pytest.mark.parametrize(
        ("clause", "output"),
        [
            ("", "default"),
            ("WITHIN TIMESTAMP ORDER BY mz_diff", "within_timestamp_order_by"),
            ("ENVELOPE UPSERT (KEY (k))", "envelope_upsert"),
            ("ENVELOPE DEBEZIUM (KEY (k))", "envelope_debezium"),
        ],
    )
    def test_subscriptions_by_output(
        self, server: ServerThread, connection: psycopg.Connection[Any], clause: str, output: str
    ) -> None:
        change = Change(server.http_port)
        with connection.transaction():
            connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE t {clause}")
            assert change.of("tidewire_subscriptions_started_total", output=output) == 0
            connection.execute("FETCH 0 c")
            assert change.of("tidewire_subscriptions_started_total", output=output) == 1
            assert change.of("tidewire_subscriptions_active", output=output) == 1
        assert change.of("tidewire_subscriptions_started_total", output=output) == 1
        assert change.of("tidewire_subscriptions_active", output=output) == 0

    @pytest.mark.parametrize("statement", ["SUBSCRIBE t {}", "COPY (SUBSCRIBE t {}) TO STDOUT"])
    @pytest.mark.parametrize(
        ("clause", "output"),
        [
            ("", "default"),
            ("WITHIN TIMESTAMP ORDER BY mz_diff + 1", "within_timestamp_order_by"),
            ("ENVELOPE UPSERT (KEY (k))", "envelope_upsert"),
            ("ENVELOPE DEBEZIUM (KEY (k))", "envelope_debezium"),
        ],
    )
    def test_a_disconnect_ends_the_subscription(
        self,
        server: ServerThread,
        dsn: str,
        connection: psycopg.Connection[Any],
        statement: str,
        clause: str,
        output: str,
    ) -> None:
        change = Change(server.http_port)
        reader = psycopg.connect(dsn, autocommit=True)
        reader.pgconn.send_query(statement.format(clause).encode())
        until(lambda: change.of("tidewire_subscriptions_started_total", output=output) == 1)  # after it is active
        assert change.of("tidewire_subscriptions_active", output=output) == 1
        reader.pgconn.finish()
        until(lambda: change.of("tidewire_subscriptions_active", output=output) == 0)
        until(lambda: change.of("tidewire_sessions") == 0)
        assert change.of("tidewire_subscriptions_started_total", output=output) == 1
        kind = "copy_to" if statement.startswith("COPY") else "subscribe"
        assert change.of("tidewire_statements_total", kind=kind, outcome="canceled") == 1
        assert change.of("tidewire_dataflows", kind="query") == 0

    def test_every_end_of_a_subscription_is_counted(
        self, server: ServerThread, connection: psycopg.Connection[Any]
    ) -> None:
        change = Change(server.http_port)
        end = 2**64 - 1
        connection.execute("SUBSCRIBE (VALUES (1))")
        connection.execute(f"SUBSCRIBE t AS OF {end} UP TO {end}")
        for refused in (f"SUBSCRIBE (VALUES (1)) UP TO {end - 1}", f"SUBSCRIBE t AS OF {end} UP TO 5"):
            with pytest.raises(errors.DataException):
                connection.execute(refused)  # type: ignore[arg-type]
        assert change.of("tidewire_subscriptions_started_total", output="default") == 2
        assert change.of("tidewire_subscriptions_active", output="default") == 0
        assert change.of("tidewire_statements_total", kind="subscribe", outcome="ok") == 2
        assert change.of("tidewire_statements_total", kind="subscribe", outcome="error") == 2

    def test_a_refused_subscription_is_not_counted(
        self, server: ServerThread, connection: psycopg.Connection[Any]
    ) -> None:
        change = Change(server.http_port)
        with pytest.raises(errors.UndefinedColumn):
            connection.execute("SUBSCRIBE t ENVELOPE UPSERT (KEY (nothing))")
        assert change.of("tidewire_subscriptions_started_total", output="envelope_upsert") == 0
        assert change.of("tidewire_statements_total", kind="subscribe", outcome="error") == 1

    def test_statements_are_counted_by_kind_and_outcome(
        self, server: ServerThread, connection: psycopg.Connection[Any]
    ) -> None:
        change = Change(server.http_port)
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("INSERT INTO t VALUES (3, 'c')")
        for _ in range(4):
            connection.execute("SELECT 1")
            connection.execute("SELECT %s::int", [1], prepare=True)
        with pytest.raises(errors.SyntaxError):
            connection.execute("SELEC 1")
        with pytest.raises(errors.UndefinedTable):
            connection.execute("DELETE FROM nothing")
        connection.execute("SET statement_timeout = '50ms'")
        with pytest.raises(errors.QueryCanceled):
            connection.execute("SUBSCRIBE t")
        of = lambda kind, outcome: change.of("tidewire_statements_total", kind=kind, outcome=outcome)
        assert of("insert", "ok") == 2
        assert of("select", "ok") == 8
        assert of("unknown", "error") == 1
        assert of("delete", "error") == 1
        assert of("set_variable", "ok") == 1
        assert of("subscribe", "canceled") == 1

    def test_commits_and_written_rows_are_counted(
        self, server: ServerThread, connection: psycopg.Connection[Any]
    ) -> None:
        change = Change(server.http_port)
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("UPDATE t SET v = 'c' WHERE k = 1")
        assert change.of("tidewire_commits_total") == 2
        assert change.of("tidewire_rows_written_total") == 4
        assert change.of("tidewire_catalog_transactions_total") >= 2
        assert change.of("tidewire_write_frontier_seconds") > 0

    def test_compactions_are_counted(self, server: ServerThread, connection: psycopg.Connection[Any]) -> None:
        change = Change(server.http_port)
        for number in range(20):
            connection.execute(f"INSERT INTO t VALUES ({number}, 'x')")
        until(lambda: change.of("tidewire_compactions_total") > 0)
        assert change.of("tidewire_compacted_batches_total") >= 2

    def test_durations_of_spark_statements_are_measured(
        self, server: ServerThread, connection: psycopg.Connection[Any]
    ) -> None:
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        change = Change(server.http_port)
        connection.execute("SELECT v, count(*) FROM t GROUP BY v")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT sum(1 / (k - 1)) FROM t")
        assert change.of("tidewire_spark_statement_seconds_count", outcome="ok") == 1
        assert change.of("tidewire_spark_statement_seconds_count", outcome="error") == 1
        assert change.of("tidewire_spark_statement_seconds_sum", outcome="ok") > 0
        assert change.of("tidewire_spark_statements", state="running") == 0

    def test_sessions_and_dataflows(self, server: ServerThread, dsn: str, connection: psycopg.Connection[Any]) -> None:
        change = Change(server.http_port)
        with psycopg.connect(dsn) as other:
            assert change.of("tidewire_sessions") == 1
            assert change.of("tidewire_sessions_opened_total") == 1
            other.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) FROM t)")
            other.execute("FETCH 1 c")
            assert change.of("tidewire_dataflows", kind="query") == 1
            connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
            assert change.of("tidewire_dataflows", kind="materialized view") == 1
            until(lambda: change.of("tidewire_arrangement_rows") == 1)  # the state of count(*)
            assert change.of("tidewire_arrangement_bytes") > 0
            assert change.of("tidewire_dataflows_recomputed") == 0
        until(lambda: change.of("tidewire_sessions") == 0)
        assert change.of("tidewire_dataflows", kind="query") == 0
        assert change.of("tidewire_sessions_opened_total") == 1

    def test_bytes_that_wait_for_a_reader(
        self, server: ServerThread, dsn: str, connection: psycopg.Connection[Any]
    ) -> None:
        change = Change(server.http_port)
        with psycopg.connect(dsn) as other:
            other.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
            other.execute("FETCH 0 c")
            connection.execute("INSERT INTO t SELECT 1, repeat('x', 10000)")
            assert change.of("tidewire_subscription_waiting_bytes") > 10_000
            other.execute("FETCH ALL c")
            assert change.of("tidewire_subscription_waiting_bytes") == 0
