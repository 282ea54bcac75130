"""Subscriptions to NEXMark's queries over random transactions: after each one, the result must equal PostgreSQL's.

In the middle, half of the subscriptions are replaced by new ones. TIDEWIRE_SEED=<number> selects another history,
TIDEWIRE_EXAMPLES=<factor> makes it longer.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.ivm.follower import Follower, expected, fault
from tests.ivm.nexmark import QUERIES, TABLES, TEMPORAL, VIEWS, History
from tests.sql.compare import difference
from tests.sql.oracle import answer_of

pytestmark = pytest.mark.ivm

FACTOR = int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
TRANSACTIONS = 16
SCRATCH_EVERY = 8  # transactions between comparisons with the result of a SELECT


def now() -> datetime:
    """The clock's time in whole milliseconds, the precision of mz_now()."""
    clock = datetime.now(UTC).replace(tzinfo=None)
    return clock.replace(microsecond=clock.microsecond // 1000 * 1000)


def at(query: str, time: int) -> str:
    """The query in PostgreSQL's SQL, with `time`, in milliseconds since 1970, for mz_now()."""
    return query.replace("mz_now()", f"(timestamp 'epoch' + {time} * interval '1 millisecond')")


class House:
    """The auction house, on both servers."""

    def __init__(self, ours: psycopg.AsyncConnection, oracle: psycopg.Connection) -> None:
        self.done: list[str] = []
        self._ours, self._oracle = ours, oracle

    async def open(self) -> None:
        for name, columns in TABLES.items():
            await self._both(f"CREATE TABLE {name} ({columns})")
        for name, query in VIEWS.items():
            await self._ours.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}".encode())
            self._oracle.execute(f"CREATE VIEW {name} AS {query}".encode())

    async def run(self, statements: list[str]) -> None:
        """Executes one transaction on both servers."""
        async with self._ours.transaction():
            with self._oracle.transaction():
                for statement in statements:
                    await self._both(statement)
        self.done.append("; ".join(statements))

    async def time(self) -> int:
        """The greatest closed time."""
        row = await (await self._ours.execute("SELECT mz_now()::text")).fetchone()
        assert row is not None
        return int(row[0])

    async def selected(self, query: str) -> str | None:
        """The difference between the results of a SELECT on both servers. None if there is none."""
        async with self._ours.transaction():
            cursor = await self._ours.execute(query.encode())
            assert cursor.pgresult is not None
            time = await self.time()
        return difference("SELECT 1", expected(self._oracle, at(query, time)), answer_of(cursor.pgresult))

    async def _both(self, statement: str) -> None:
        self._oracle.execute(statement.encode())
        await self._ours.execute(statement.encode())


async def trade(dsn: str, oracle: psycopg.Connection) -> list[str]:
    """The faults, followed by the transactions that led to them."""
    draw = Random(SEED)
    queries = QUERIES | TEMPORAL
    faults: list[str] = []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))
        house, history = House(ours, oracle), History(draw)
        await house.open()
        await house.run(list(history.first(now())))
        followers = {name: await stack.enter_async_context(Follower(dsn, query)) for name, query in queries.items()}
        for number in range(TRANSACTIONS * FACTOR + 1):
            before = await house.time()
            afresh = set(followers) if number == 0 else set()
            if number:
                await house.run(history.transaction(now()))
            if number == TRANSACTIONS * FACTOR // 2:
                afresh = set(draw.sample(sorted(followers), len(followers) // 2))
                for name in afresh:
                    await followers[name].__aexit__(None, None, None)
                    followers[name] = await stack.enter_async_context(Follower(dsn, queries[name]))
            time = await house.time()
            for name in list(followers):
                follower = followers[name]
                rows = await follower.at(time, 120)
                different = fault(expected(oracle, at(queries[name], follower.progress - 1)), rows)
                late = {t for t in follower.times if not before < t <= time}
                follower.times.clear()
                if late and name not in TEMPORAL and name not in afresh:
                    different = f"updates at {late}, the transaction's time is in ({before}, {time}]"
                if different is None and number % SCRATCH_EVERY == 0:
                    different = await house.selected(queries[name])
                if different is not None:
                    faults.append(f"{name} after transaction {number} (TIDEWIRE_SEED={SEED}): {different}")
                    del followers[name]
    silent = [name for name, follower in followers.items() if not follower.updates]
    assert len(silent) < len(queries) // 4, f"queries without rows show nothing: {silent}"
    return [*faults, *house.done[1:]] if faults else []


@pytest.mark.long
@pytest.mark.timeout(900 * FACTOR)
def test_queries_equal_postgresql_after_each_transaction(server: ServerThread, dsn: str, postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as oracle:
        oracle.execute("DROP SCHEMA IF EXISTS nexmark CASCADE; CREATE SCHEMA nexmark; SET search_path = nexmark")
        try:
            faults = asyncio.run(trade(dsn, oracle))
        finally:
            oracle.execute("DROP SCHEMA nexmark CASCADE")
    assert not faults, "\n".join(faults)
