"""A PostgreSQL with logical replication, and a database of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from server.ingest.postgres import upstream
from tests.fix_postgres import PostgresServer
from tests.server.ingest.postgres.harness import database

_numbers = itertools.count()


@pytest.fixture(scope="session")
def logical() -> Iterator[str]:
    server = PostgresServer("wal_level=logical\nmax_wal_senders=20\nmax_replication_slots=20")
    yield server.dsn
    server.stop()


@pytest.fixture
async def source_database(logical: str) -> AsyncIterator[tuple[str, Any]]:
    async with database(logical, f"d{next(_numbers)}") as found:
        yield found


@pytest.fixture(autouse=True)
def positions_are_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for the position, also when only other tables were written."""
    monkeypatch.setattr(upstream, "IDLE_LSN_S", 0.0)
