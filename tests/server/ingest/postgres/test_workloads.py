"""Random transactions: at rest the collections equal the tables, at each time half of a transaction is never seen.

Also while connections are lost, the server is killed and PostgreSQL crashes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from catalog.store import FILE
from protocol.pgoutput.stream import parse_lsn
from server.ingest import ingestion
from tests.fix_postgres import PostgresServer
from tests.server.ingest.postgres.harness import Source, definition, running
from tests.server.ingest.postgres.workload import SETUP, TABLES, check_all_times, work

CLIENTS = 3
KILLS = 4


async def equal(source: Source, connection: Any) -> None:
    await source.reached(connection)
    assert source.statistics.errors == {}
    for name in TABLES:
        await source.same(connection, name)
    await check_all_times(source)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.crash) for seed in (1, 2))])
async def test_random_transactions_with_lost_connections_and_restarts(
    tmp_path: Path, source_database: tuple[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "READ_BYTES_MAX", 20_000)
    monkeypatch.setattr("server.ingest.postgres.replication.TAKE_BYTES", 5_000)
    dsn, connection = source_database
    await connection.execute(SETUP)
    workers = [asyncio.create_task(work(dsn, seed * CLIENTS + client, 60)) for client in range(CLIENTS)]
    ended = asyncio.gather(*workers)
    for _ in range(2):
        async with running(tmp_path, definition(dsn)) as source:
            for goal in (5, 10):
                wanted = source.ingestion.rows + goal
                more = asyncio.create_task(source.until(lambda wanted=wanted: source.ingestion.rows > wanted))  # type: ignore[misc]
                # On a busy machine, all transactions may have ended before the source is connected again.
                await asyncio.wait([more, ended], return_when=asyncio.FIRST_COMPLETED)
                more.cancel()
                await connection.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE active AND database = current_database()"
                )
    async with running(tmp_path, definition(dsn)) as source:
        await ended
        await equal(source, connection)


@pytest.mark.crash
async def test_kills_of_the_server_and_crashes_of_postgresql(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical\nmax_wal_size='64MB'")
    try:
        dsn = postgres.dsn
        connection = await asyncpg.connect(dsn)
        await connection.execute(SETUP)
        await connection.close()
        workers = [asyncio.create_task(work(dsn, 100 + client, 1_000_000)) for client in range(CLIENTS)]
        for kill in range(KILLS):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.server.ingest.postgres.child", str(tmp_path), dsn
            )
            if kill == 0:  # during the snapshot
                await _until(dsn, "SELECT count(*) > 0 FROM pg_replication_slots")
            else:
                await _committed(tmp_path, beyond=await _lsn(dsn))
            if kill % 2:
                await _crash(dsn)
                await _committed(tmp_path, beyond=await _lsn(dsn))
            child.kill()
            await child.wait()
        async with running(tmp_path, definition(dsn)) as source:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            assert all(worker.cancelled() for worker in workers)
            connection = await asyncpg.connect(dsn)
            await equal(source, connection)
            assert len(source.times("journal")) > KILLS
            await connection.close()
    finally:
        postgres.stop()


async def _query(dsn: str, query: str, *arguments: object) -> Any:
    """The value of a query, also while PostgreSQL recovers."""
    while True:
        try:
            connection = await asyncpg.connect(dsn)
        except (asyncpg.PostgresError, OSError):
            await asyncio.sleep(0.05)
            continue
        try:
            return await connection.fetchval(query, *arguments)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await asyncio.sleep(0.05)
        finally:
            connection.terminate()


async def _lsn(dsn: str) -> int:
    return int(await _query(dsn, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


async def _until(dsn: str, query: str) -> None:
    """Waits until a query returns true."""
    while not await _query(dsn, query):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _committed(directory: Path, beyond: int) -> None:
    """Waits until the source has committed everything before an LSN."""
    while _stored_lsn(directory) < beyond:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _stored_lsn(directory: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT value FROM source_state WHERE key = 'lsn'").fetchall()
    except sqlite3.OperationalError:
        return 0
    return parse_lsn(found[0][0].decode()) if found else 0


async def _crash(dsn: str) -> None:
    """Kills a backend with -9: PostgreSQL then kills all others and recovers from its WAL."""
    connection = await asyncpg.connect(dsn)
    os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
    connection.terminate()
