"""Only the subscriber that falls too far behind gets an error. The error names the last progress sent before it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.fix_server import ServerThread
from tests.polling import HANG_S

LIMIT = 200_000
WIDE = "x" * 20_000


class StuckClient:
    """Subscribes through its own socket and reads only when a method is called."""

    def __init__(self, server: ServerThread, database: str, statement: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(StartupMessage({"user": "stuck", "database": database}).serialize())
        self.socket.sendall(Query(f"SET subscription_waiting_bytes_max = {LIMIT}").serialize())
        self.socket.sendall(Query(statement).serialize())
        self.seen = b""

    def read_until(self, end: bytes) -> bytes:
        while end not in self.seen:
            data = self.socket.recv(1 << 20)
            assert data, "the server hung up"
            self.seen += data
        return self.seen

    def __enter__(self) -> StuckClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()


@pytest.fixture
def table(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        yield connection


def progress_rows(stream: bytes) -> list[int]:
    return [int(time) for time in re.findall(rb"(\d{13})\tt\t", stream)]


@pytest.mark.long
def test_only_the_slow_client_gets_an_error(
    server: ServerThread, dsn: str, table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.frontend.session.STUCK_S", 300)  # longer than all inserts take
    total = 1_200
    counted = threading.Event()

    def follow() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            stream = connection.cursor().stream("SUBSCRIBE t")
            for number, _ in enumerate(stream, 1):
                if number == total:
                    counted.set()
                    break
            stream.close()

    with StuckClient(server, dsn.rsplit("/", 1)[1], "COPY (SUBSCRIBE t WITH (PROGRESS)) TO STDOUT") as stuck:
        stuck.read_until(b"\tt\t")
        neighbour = threading.Thread(target=follow)
        neighbour.start()
        for number in range(total):
            table.execute("INSERT INTO t VALUES (%s, %s)", (number, WIDE))
        assert counted.wait(HANG_S), "the neighbour was delayed"
        neighbour.join()
        seen = stuck.read_until(b"subscription fell too far behind")
        seen = stuck.read_until(b"subscription_waiting_bytes_max.")
    before, _, error = seen.partition(b"C54000\0")
    (last_progress,) = re.findall(rb"The last progress before this error is (\d+)", error)
    assert int(last_progress) == progress_rows(before)[-1]


def test_the_connection_of_a_client_that_reads_nothing_is_aborted(
    server: ServerThread, dsn: str, table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.frontend.session.STUCK_S", 0.2)
    clients = server.app.listener.clients

    async def gone(process_ids: set[int]) -> None:
        async with asyncio.timeout(HANG_S):
            while process_ids & {client.process_id for client in clients}:
                await clients.wait_until_one_leaves()

    before = {client.process_id for client in clients}
    with StuckClient(server, dsn.rsplit("/", 1)[1], "COPY (SUBSCRIBE t) TO STDOUT") as stuck:
        stuck.read_until(b"H\0")
        stuck_ones = {client.process_id for client in clients} - before
        for number in range(600):
            table.execute("INSERT INTO t VALUES (%s, %s)", (number, WIDE))
        server.call(gone(stuck_ones))
