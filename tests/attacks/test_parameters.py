"""Parameters with millions of values."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.json_values import VALUES_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark

pytestmark = pytest.mark.attacks

SESSIONS = 6
GROWTH_MAX = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("type", ["json", "jsonb"])
@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * (2 * VALUES_MAX) + "1]",
        "[" + "{}," * (2 * VALUES_MAX) + "1]",
        "[[1]" + ",[1]" * (VALUES_MAX + 1) + "]",
    ],
    ids=["numbers", "objects", "arrays"],
)
def test_json_with_millions_of_values_is_refused(server: ServerProcess, type: str, text: str) -> None:
    """Each number would take a hundred bytes of memory."""
    before, greatest = resident_bytes(server.process.pid), 0
    refused = []

    def bind() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            try:
                connection.execute(f"SELECT length(%s::{type}::text)".encode(), [text])
            except errors.ProgramLimitExceeded:
                refused.append(True)

    threads = [threading.Thread(target=bind) for _ in range(SESSIONS)]
    with watched(server):
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            greatest = max(greatest, resident_bytes(server.process.pid))
            threads[0].join(0.05)
            threads[-1].join(0.05)
    assert len(refused) == SESSIONS
    assert greatest - before < GROWTH_MAX
