"""Random queries over random histories: after each commit, a subscription's result must equal PostgreSQL's and Spark's.

TIDEWIRE_SEED=<number> selects other histories, TIDEWIRE_EXAMPLES=<factor> runs more of them; `make test-ivm` runs
thousands. A failure prints its seed, the transactions so far and the query.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from unittest import mock

import psycopg
import pytest

from server.dataflow.arrangements import file_arrangement
from server.spark.engine import SparkEngine
from tests.fix_server import ServerThread
from tests.ivm.both_servers import closed_time, commit, namespace
from tests.ivm.follower import END_OF_TIME, Follower, expected, fault
from tests.ivm.history import definition, insert, tables, transaction
from tests.ivm.queries import Maker, View
from tests.sql.answers import Answer
from tests.sql.oracle import answer_of

pytestmark = pytest.mark.ivm

FACTOR = int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
HISTORIES = 4  # each with its own seed
QUERIES = 12  # subscribed to at the same time
TRANSACTIONS = 10
DEPTH = 3
SCRATCH_EVERY = 5  # transactions between comparisons with the result of a SELECT


def expected_at(oracle: psycopg.Connection, query: str, time: int) -> Answer:
    """PostgreSQL's answer if mz_now() is `time`."""
    oracle.execute("SELECT set_config('tidewire.now', %s, false)", (str(time),))
    return expected(oracle, query)


async def follow(dsn: str, oracle: psycopg.Connection, seed: int) -> tuple[list[str], int, int]:
    """The faults of one history, the number of results compared, and the number of queries without a result."""
    draw = Random(seed)
    made = tables(draw)
    done: list[str] = []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))

        async def run(statements: Sequence[str]) -> int:
            done.append("; ".join(statements))
            return await commit(ours, oracle, statements)

        async def define(view: View) -> None:
            oracle.execute(f"CREATE VIEW {view.name} AS {view.select}".encode())
            kind = "MATERIALIZED VIEW" if view.materialized else "VIEW"
            try:
                await ours.execute(f"CREATE {kind} {view.name} AS {view.select}".encode())
            except psycopg.errors.FeatureNotSupported:  # then a query that names the view is refused as well
                await ours.execute(f"CREATE VIEW {view.name} AS {view.select}".encode())
            done.append(f"CREATE {kind} {view.name} AS {view.select}")

        for name, columns in made.items():
            await run([definition(name, columns)])
            await run([insert(draw, name, columns, 6)])
        oracle.execute(
            "CREATE FUNCTION mz_now() RETURNS numeric STABLE LANGUAGE sql AS "
            "'SELECT current_setting(''tidewire.now'')::numeric'"
        )
        make = Maker(draw, made, await closed_time(ours))
        queries = [make.query(DEPTH) for _ in range(QUERIES)]
        for view in make.views:
            await define(view)
        followers = [await stack.enter_async_context(Follower(dsn, query)) for query in queries]
        faults: dict[str, str] = {}
        refused: set[str] = set()
        compared = 0
        for number in range(TRANSACTIONS + 1):
            before = await closed_time(ours)
            time = before if number == 0 else await run(transaction(draw, made))
            for follower in followers:
                if follower.query in faults or follower.query in refused:
                    continue
                try:
                    rows = await follower.at(time)
                    answer = expected_at(oracle, follower.query, follower.progress - 1)
                except psycopg.Error as error:
                    answer = expected_at(oracle, follower.query, time)
                    if error.sqlstate == "0A000":
                        refused.add(follower.query)
                    elif error.sqlstate != answer.sqlstate:
                        faults[follower.query] = f"{error.sqlstate} {error}; PostgreSQL: {answer.sqlstate}"
                    else:
                        refused.add(follower.query)  # it fails on both servers, so nothing remains to be compared
                    continue
                except (AssertionError, TimeoutError) as error:
                    faults[follower.query] = f"{type(error).__name__}: {error}"
                    continue
                compared += 1
                changes_with_time = any("mz_now()" in text for text in _texts(follower.query, make.views))
                late = {t for t in follower.times if number and not before < t <= time and t != END_OF_TIME - 1}
                follower.times.clear()
                different = fault(answer, rows)
                if different is None and number % SCRATCH_EVERY == 0 and not changes_with_time:
                    result = (await ours.execute(follower.query.encode())).pgresult
                    assert result is not None
                    different = fault(answer_of(result), rows)
                if late and not changes_with_time:
                    different = f"updates at {late}, the transaction's time is in ({before}, {time}]"
                if different is not None:
                    faults[follower.query] = f"after transaction {number}: {different}"
    story = "\n".join(done)
    return (
        [f"{query}\n    {why}\n  TIDEWIRE_SEED={seed}\n{story}" for query, why in faults.items()],
        compared,
        len(refused),
    )


def _texts(query: str, views: Sequence[View]) -> list[str]:
    """The query's text, and those of the views that it names, also through other views."""
    texts = [query]
    for view in reversed(views):
        if any(re.search(rf"\b{view.name}\b", text) for text in texts):
            texts.append(view.select)
    return texts


def compare(server: ServerThread, postgres: str, histories: int) -> None:
    faults: list[str] = []
    compared = refused = 0
    for number in range(histories):
        seed = SEED * 1_000_000 + number
        with namespace(server, postgres, f"ivm_{seed}") as (dsn, oracle):
            found = asyncio.run(follow(dsn, oracle, seed))
        faults += found[0]
        compared += found[1]
        refused += found[2]
    print(f"{compared} answers compared, {refused} queries refused or failing on both")
    assert not faults, f"{len(faults)} queries differ\n" + "\n\n".join(faults)
    assert compared > 3 * refused


@pytest.mark.timeout(900 * FACTOR)
def test_random_histories(server: ServerThread, postgres: str) -> None:
    compare(server, postgres, HISTORIES * FACTOR)


@pytest.mark.timeout(900 * FACTOR)
def test_random_histories_with_state_in_executors(engine: SparkEngine, postgres: str, tmp_path: Path) -> None:
    """New state is written to files, which Spark's executors search."""
    with mock.patch.object(file_arrangement, "HEAD_BYTES_MAX", 0):
        server = ServerThread(tmp_path / "data", engine, arrangement_directory=tmp_path / "shared")
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET arrangement_probing = 'executors'")
            compare(server, postgres, FACTOR)
        finally:
            server.stop()
