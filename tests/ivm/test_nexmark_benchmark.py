"""The queries of the benchmark `nexmark`: their maintained results must equal PostgreSQL's at the end of the events."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import psycopg
import pytest

from tests.bench.nexmark_events import Events
from tests.bench.others.nexmark_queries import COLUMNS, QUERIES, SIDE_COLUMNS, SIDE_INPUT
from tests.ivm.follower import Follower, expected, fault

pytestmark = pytest.mark.ivm

EVENTS, TRANSACTION = 4_000, 500


def define(connection: psycopg.Connection, events: Events) -> None:
    for table, columns in {**COLUMNS, SIDE_INPUT: SIDE_COLUMNS}.items():
        connection.execute(f"CREATE TABLE {table} ({columns})".encode())
    copy(connection, {SIDE_INPUT: events.side_input.encode()})


def copy(connection: psycopg.Connection, lines: dict[str, bytes]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        for table, text in lines.items():
            with cursor.copy(f"COPY {table} FROM STDIN WITH (FORMAT csv)".encode()) as target:
                target.write(text)


async def faults(dsn: str, oracle: psycopg.Connection, events: Events) -> list[str]:
    found = []
    async with AsyncExitStack() as stack:
        ours = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        define(ours, events)
        define(oracle, events)
        followers = {name: await stack.enter_async_context(Follower(dsn, query)) for name, query in QUERIES.items()}
        for follower in followers.values():
            await follower.at(1, 120)  # the snapshot of empty tables: all rows come from changes
        for lines in events.transactions(TRANSACTION):
            await asyncio.to_thread(copy, ours, lines)
            copy(oracle, lines)
        row = ours.execute("SELECT mz_now()::text").fetchone()
        assert row is not None
        for name, follower in followers.items():
            rows = await follower.at(int(row[0]), 120)
            answer = expected(oracle, QUERIES[name])
            assert answer.rows, f"{name} has no rows"
            if (different := fault(answer, rows)) is not None:
                found.append(f"{name}: {different}")
    return found


@pytest.mark.long
def test_final_results_equal_postgresql(dsn: str, postgres: str) -> None:
    events = Events(EVENTS, per_ms=1)  # rows with one time have no order
    with psycopg.connect(postgres, autocommit=True) as oracle:
        oracle.execute("DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench; SET search_path = bench")
        try:
            found = asyncio.run(faults(dsn, oracle, events))
        finally:
            oracle.execute("DROP SCHEMA bench CASCADE")
    assert not found, "\n".join(found)
