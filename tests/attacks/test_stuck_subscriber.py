"""Subscribers that never read cost a bounded amount of memory, however much is written meanwhile."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.execution.test_large_snapshot import Watch, anonymous_kib

pytestmark = pytest.mark.attacks

BOUND_MIB = 64  # of waiting changes: `subscription_waiting_bytes_max`
CACHE_MIB = 256  # of the payloads of small commits. How much of it is used depends on the speed of the writes
NOISE_MIB = 32  # the peak without subscribers differs by so much between two runs
COMMITS = 2_000
ROWS, ROW_BYTES = 3, 20_000  # bytes of each commit: 115 MiB in total


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = server_without_spark(tmp_path)
    yield server
    assert server.stop() == 0


def stuck_subscriber(server: ServerProcess) -> socket.socket:
    """Subscribes, reads until the first progress, and then stops reading."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    client.sendall(StartupMessage({"user": "stuck", "database": "materialize"}).serialize())
    client.sendall(Query("COPY (SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false)) TO STDOUT").serialize())
    seen = b""
    while b"\tt\t" not in seen:
        data = client.recv(4096)
        assert data, "the server hung up"
        seen += data
    return client


def growth_mib(server: ServerProcess, loaded_kib: int) -> int:
    """The server's greatest memory in excess of `loaded_kib` while many large rows are written."""
    insert = f"INSERT INTO t VALUES {', '.join(['(%s, %s)'] * ROWS)}"
    with psycopg.connect(server.dsn, autocommit=True) as writer, Watch(server.process.pid, loaded_kib) as watch:
        for number in range(COMMITS):
            rows = ((number, os.urandom(ROW_BYTES // 2).hex()) for _ in range(ROWS))
            writer.execute(insert, [value for row in rows for value in row])
    return watch.grown_mib


@pytest.mark.long
def test_stuck_subscribers_cost_no_more_memory_than_their_bound(own_server: ServerProcess) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v text)")
        connection.execute("INSERT INTO t VALUES (0, 'x')")
    loaded_kib = anonymous_kib(own_server.process.pid)
    alone_mib = growth_mib(own_server, loaded_kib)
    stuck = [stuck_subscriber(own_server) for _ in range(3)]
    beside_mib = growth_mib(own_server, loaded_kib)
    for client in stuck:
        client.close()
    print(f"grown by {alone_mib} MiB without subscribers, by {beside_mib} MiB with {len(stuck)} that do not read")
    assert alone_mib < CACHE_MIB, "compaction takes more memory than it may"
    assert beside_mib < alone_mib + BOUND_MIB + NOISE_MIB
