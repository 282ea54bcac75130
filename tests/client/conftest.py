"""A table whose history is retained, and a check that no read hold of a client remains."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.fix_server import ServerThread

Execute = Callable[[str], None]


@pytest.fixture
def execute(dsn: str) -> Iterator[Execute]:
    """Executes a statement in the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield lambda statement: connection.execute(statement.encode()) and None


@pytest.fixture
def table(server: ServerThread, execute: Execute) -> Iterator[str]:
    """An empty table t (k int, v int) whose history is retained during the test."""
    execute("CREATE TABLE t (k int, v int)")
    frontiers = server.app.coordinator.frontiers

    async def hold() -> Callable[[], None]:
        ids = list(frontiers.floors)
        return frontiers.hold(ids, frontiers.greatest_since(ids)).release

    release = server.call(hold())
    yield "t"
    release()


@pytest.fixture
def released(server: ServerThread) -> Iterator[None]:
    """Fails the test if the server still has a read hold for a disconnected client."""
    holders = server.app.coordinator.frontiers.holders
    before = len(holders)
    yield
    deadline = time.monotonic() + 10
    while len(holders) > before:
        assert time.monotonic() < deadline, "a read hold remained"
        threading.Event().wait(0.01)
