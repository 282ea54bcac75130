"""Tidewire and PostgreSQL, on which a random history is executed at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from tests.fix_server import ServerThread


@contextmanager
def namespace(server: ServerThread, postgres: str, name: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """The DSN of a new database of Tidewire, and a connection to a new schema of PostgreSQL. Kept after an error."""
    with (
        psycopg.connect(server.dsn(), autocommit=True) as admin,
        psycopg.connect(postgres, autocommit=True) as oracle,
    ):
        admin.execute(f"CREATE DATABASE {name}".encode())
        oracle.execute(f"CREATE SCHEMA {name}; SET search_path = {name}".encode())
        yield server.dsn(name), oracle
        admin.execute(f"DROP DATABASE {name} CASCADE".encode())
        oracle.execute(f"DROP SCHEMA {name} CASCADE".encode())


async def closed_time(ours: psycopg.AsyncConnection) -> int:
    """The greatest closed time."""
    row = await (await ours.execute("SELECT mz_now()::text")).fetchone()
    assert row is not None
    return int(row[0])


async def commit(ours: psycopg.AsyncConnection, oracle: psycopg.Connection, statements: Sequence[str]) -> int:
    """Executes a transaction on both servers. Returns a time at which Tidewire has closed it."""
    with oracle.transaction():
        for statement in statements:
            oracle.execute(statement.encode())
    async with ours.transaction():
        for statement in statements:
            await ours.execute(statement.encode())
    return await closed_time(ours)
