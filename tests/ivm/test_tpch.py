"""Subscriptions to TPC-H's 22 queries during random refreshes: after each commit, the result must equal PostgreSQL's.

TIDEWIRE_SEED=<number> selects other refreshes. TIDEWIRE_SCALE=<factor> makes the tables larger than the 0.001 of `make
test-ivm`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.ivm.both_servers import closed_time, commit
from tests.ivm.follower import Follower, expected, fault
from tests.ivm.tpch import QUERIES, TABLES, Refreshes, generate

pytestmark = pytest.mark.ivm

SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
SCALE = float(os.environ.get("TIDEWIRE_SCALE", "0.001"))
TRANSACTIONS = 12


def load(connection: psycopg.Connection, files: dict[str, Path]) -> None:
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns})".encode())
        with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv, HEADER)".encode()) as copy:
            copy.write(files[name].read_bytes())


async def follow(dsn: str, oracle: psycopg.Connection) -> list[str]:
    draw = Random(SEED)
    faults: list[str] = []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))
        greatest = oracle.execute("SELECT max(o_orderkey) FROM orders").fetchone()
        assert greatest is not None
        refreshes = Refreshes(draw, greatest[0])
        followers = {n: await stack.enter_async_context(Follower(dsn, query)) for n, query in QUERIES.items()}
        story: list[str] = []
        time = await closed_time(ours)
        for number in range(TRANSACTIONS + 1):
            if number:
                statements = refreshes.transaction()
                story.append("; ".join(statements))
                time = await commit(ours, oracle, statements)
            for query in list(followers):
                rows = await followers[query].at(time, 300)
                different = fault(expected(oracle, QUERIES[query]), rows)
                if different is not None:
                    faults.append(f"query {query} after transaction {number} (TIDEWIRE_SEED={SEED}): {different}")
                    del followers[query]
    return [*faults, *story] if faults else []


@pytest.mark.timeout(3600)
def test_queries_equal_postgresql_after_each_refresh(
    server: ServerThread, dsn: str, postgres: str, tmp_path: Path
) -> None:
    files = generate(tmp_path, SCALE)
    with psycopg.connect(postgres, autocommit=True) as oracle:
        oracle.execute("CREATE SCHEMA tpch; SET search_path = tpch")
        try:
            load(oracle, files)
            with psycopg.connect(dsn, autocommit=True) as connection:
                load(connection, files)
            faults = asyncio.run(follow(dsn, oracle))
        finally:
            oracle.execute("DROP SCHEMA tpch CASCADE")
    assert not faults, "\n".join(faults)
