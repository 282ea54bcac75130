"""Subscriptions to the random queries of `random_queries`, while the suite's tables change: after each transaction, the
accumulated rows must equal PostgreSQL's.

`test_random` nests the operators of dataflows; these queries nest the clauses of SQL. TIDEWIRE_SEED=<number> selects
other queries and transactions, TIDEWIRE_EXAMPLES=<factor> runs more histories.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack
from random import Random

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.ivm.both_servers import commit, namespace
from tests.ivm.follower import Follower, expected, fault
from tests.server.sql.random_queries import TABLES, Maker
from tests.sql.statements import table_definitions

pytestmark = pytest.mark.ivm

FACTOR = int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
QUERIES = 12  # subscribed to at the same time
TRANSACTIONS = 6


def definitions() -> list[str]:
    """The statements that make the tables, and for each a table `old_...` with the rows that it has at first."""
    found = [s for s in table_definitions() if re.split(r"\W+", s)[2] in TABLES]
    return found + [f"CREATE TABLE old_{name} AS SELECT * FROM {name}" for name in TABLES]


def transaction(draw: Random) -> list[str]:
    """One or two statements that delete, update and duplicate rows, or insert them again."""
    statements = []
    for _ in range(draw.randrange(1, 3)):
        name = draw.choice(sorted(TABLES))
        key = next(iter(TABLES[name]))
        column, type = draw.choice(list(TABLES[name].items()))
        one, other = draw.randrange(1, 9), draw.randrange(1, 9)
        value = "NULL" if type in ("bool", "jsonb") else f"(SELECT max({column}) FROM old_{name} WHERE {key} < {one})"
        statements.append(
            draw.choice(
                (
                    f"DELETE FROM {name} WHERE {key} IN ({one}, {other})",
                    f"INSERT INTO {name} SELECT * FROM old_{name} WHERE {key} IN ({one}, {other}) OR {key} IS NULL",
                    f"UPDATE {name} SET {key} = {other} WHERE {key} = {one}",
                    f"UPDATE {name} SET {column} = {value} WHERE {key} >= {other}",
                )
            )
        )
    return statements


async def faults_of(dsn: str, oracle: psycopg.Connection, seed: int) -> tuple[list[str], int]:
    """The faults of one history, and the number of results compared."""
    draw = Random(seed)
    make = Maker(draw)
    done: list[str] = []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))

        time = await commit(ours, oracle, definitions())
        queries: list[str] = []
        while len(queries) < QUERIES:
            query = make.query()
            if expected(oracle, query).sqlstate is None:
                queries.append(query)
        followers = [await stack.enter_async_context(Follower(dsn, query)) for query in queries]
        faults: list[str] = []
        compared = 0
        for number in range(TRANSACTIONS + 1):
            if number:
                statements = transaction(draw)
                done.append("; ".join(statements))
                time = await commit(ours, oracle, statements)
            for follower in list(followers):
                answer = expected(oracle, follower.query)
                try:
                    different = fault(answer, await follower.at(time))
                except psycopg.Error as error:
                    followers.remove(follower)
                    if error.sqlstate not in ("0A000", answer.sqlstate):
                        faults.append(f"{follower.query}\n    {error.sqlstate} {error}; PostgreSQL: {answer.sqlstate}")
                    continue
                compared += 1
                if different is not None:
                    followers.remove(follower)
                    faults.append(f"{follower.query}\n    after transaction {number}: {different}")
    story = "\n".join(done)
    return [f"{each}\n  TIDEWIRE_SEED={SEED}, history {seed}\n{story}" for each in faults], compared


@pytest.mark.timeout(900 * FACTOR)
def test_random_clauses(server: ServerThread, postgres: str) -> None:
    faults: list[str] = []
    compared = 0
    for number in range(FACTOR):
        seed = SEED * 1_000_000 + number
        with namespace(server, postgres, f"clauses_{seed}") as (dsn, oracle):
            found = asyncio.run(faults_of(dsn, oracle, seed))
        faults += found[0]
        compared += found[1]
    print(f"{compared} answers compared")
    assert not faults, f"{len(faults)} queries differ\n" + "\n\n".join(faults)
    assert compared > QUERIES * FACTOR
