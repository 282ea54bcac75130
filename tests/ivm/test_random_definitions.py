"""Random definitions and writes while subscriptions run: ALTER TABLE, views, materialized views, indexes, restarts.

Queries must have PostgreSQL's results, and a subscription the rows of its query unless a definition ended it.

TIDEWIRE_SEED=<number> selects other histories, TIDEWIRE_EXAMPLES=<factor> runs more of them.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import pytest

from server.spark.engine import SparkEngine
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.ivm.both_servers import closed_time
from tests.ivm.follower import Follower, expected, fault
from tests.sql.answers import Answer
from tests.sql.compare import difference
from tests.sql.oracle import answer_of

FACTOR = int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
HISTORIES = 3  # each with its own seed
BLOCKS = 14  # transactions of a history
ENDED = ("40001", "42704")  # of a subscription whose relations were altered or dropped

START = (
    "CREATE TABLE t (k int, a int, b text)",
    "CREATE TABLE u (k int, x numeric(6,2))",
    "INSERT INTO t VALUES (1, 2, 'x'), (2, 3, NULL), (2, 3, 'y')",
    "INSERT INTO u VALUES (1, 1.5), (2, 0), (3, NULL)",
    "CREATE VIEW v AS SELECT k, a FROM t WHERE k > 0",
    "CREATE MATERIALIZED VIEW m AS SELECT k, count(a) AS a FROM t GROUP BY k",
)
TABLES, VIEWS, MAINTAINED, INDEXES = ("t", "t", "t", "u"), ("v", "w"), ("m", "n"), ("i", "j")
QUERIES = (
    *(f"SELECT * FROM {name}" for name in (*TABLES[2:], *VIEWS, *MAINTAINED)),
    "SELECT k, a, b FROM t WHERE a IS NOT NULL",
    "SELECT k, count(*) AS n, max(b) AS b FROM t GROUP BY k",
    "SELECT t.k, u.x FROM t JOIN u ON t.k = u.k",
    "SELECT v.k, m.a FROM v LEFT JOIN m ON v.k = m.k",
    "SELECT DISTINCT a FROM w",
    "SELECT max(k) AS k, count(*) AS n FROM n",
)


def body(draw: Random) -> str:
    """The query of a view, with columns `k` and `a`."""
    source = draw.choice((*TABLES, "v", "w", "m", "n"))
    return draw.choice(
        (
            f"SELECT k, a FROM {source}",
            "SELECT * FROM t",
            f"SELECT k, a FROM {source} WHERE k > 1",
            f"SELECT k, count(a) AS a FROM {source} GROUP BY k",
            f"SELECT k, max(a) AS a FROM {source} WHERE a IS NOT NULL GROUP BY k",
            f"SELECT s.k, u.x AS a FROM {source} s LEFT JOIN u ON s.k = u.k",
            "SELECT k, b AS a FROM t",
            "SELECT k, k + 1 AS a FROM u WHERE x > 0",
            f"SELECT DISTINCT k, a FROM {source}",
        )
    )


def action(draw: Random) -> str:
    column, number = draw.choice("abckx"), draw.randrange(4)
    return draw.choice(
        (
            f"ADD COLUMN {column} int DEFAULT {number}",
            f"ADD COLUMN {column} text DEFAULT 'x{number}'",
            f"ADD COLUMN IF NOT EXISTS {column} int",
            f"ADD COLUMN {column} int GENERATED ALWAYS AS (k + 1) STORED",
            f"DROP COLUMN {column}",
            f"DROP COLUMN IF EXISTS {column} CASCADE",
            f"ALTER {column} SET DEFAULT {number}",
            f"ALTER {column} DROP DEFAULT",
            f"ALTER {column} SET NOT NULL",
            f"ALTER {column} DROP NOT NULL",
            f"ALTER {column} TYPE text",
            f"ALTER {column} TYPE bigint",
            f"ALTER {column} TYPE int USING length({column}::text)",
            f"ADD CONSTRAINT unique_{column} UNIQUE ({column})",
            f"DROP CONSTRAINT IF EXISTS unique_{column}",
        )
    )


def definition(draw: Random) -> str:
    table, view, maintained = draw.choice(TABLES), draw.choice(VIEWS), draw.choice(MAINTAINED)
    behavior = draw.choice(("", "", " CASCADE"))
    match draw.randrange(12):
        case 0 | 1 | 2:
            return f"ALTER TABLE {table} {', '.join(action(draw) for _ in range(draw.choice((1, 1, 2))))}"
        case 3:
            kind, name = draw.choice((("TABLE", table), ("VIEW", view), ("MATERIALIZED VIEW", maintained)))
            return f"ALTER {kind} {name} RENAME COLUMN {draw.choice('akbc')} TO {draw.choice('akbc')}"
        case 4:
            return f"CREATE OR REPLACE VIEW {view} AS {body(draw)}"
        case 5:
            return f"CREATE VIEW {view} AS {body(draw)}"
        case 6 | 7:
            return f"CREATE MATERIALIZED VIEW {maintained} AS {body(draw)}"
        case 8:
            kind, name = draw.choice((("VIEW", view), ("MATERIALIZED VIEW", maintained), ("TABLE", "u")))
            return f"DROP {kind} {name}{behavior}"
        case 9:
            kind, names = draw.choice((("VIEW", VIEWS), ("MATERIALIZED VIEW", MAINTAINED), ("TABLE", ("t", "old"))))
            return f"ALTER {kind} {draw.choice(names)} RENAME TO {draw.choice(names)}"
        case 10:
            index = draw.choice(INDEXES)
            return draw.choice((f"CREATE INDEX {index} ON {table} ({draw.choice('kab')})", f"DROP INDEX {index}"))
        case _:
            return draw.choice(
                ("CREATE TABLE u (k int, x numeric(6,2))", "CREATE TABLE u AS SELECT k, 2.5::numeric(6,2) AS x FROM t")
            )


def write(draw: Random) -> str:
    one, other, column = draw.randrange(4), draw.randrange(4), draw.choice("abc")
    return draw.choice(
        (
            f"INSERT INTO t (k, {column}) VALUES ({one}, {other})",
            f"INSERT INTO t (k) VALUES ({one}), ({other})",
            f"UPDATE t SET {column} = DEFAULT WHERE k = {one}",
            f"UPDATE t SET k = k + 1 WHERE k < {one}",
            "INSERT INTO t SELECT * FROM t WHERE k = 1",
            f"DELETE FROM t WHERE k = {one}",
            f"INSERT INTO u (k, x) VALUES ({one}, {other})",
            f"DELETE FROM u WHERE k = {one}",
            "TRUNCATE u",
        )
    )


def in_postgresql(statement: str) -> str:
    return statement.replace("MATERIALIZED VIEW", "VIEW")


Start = Callable[[], tuple[str, Callable[[], object]]]
"""Starts the server. Returns its DSN, and what ends it."""


class History:
    """Two servers, and the subscriptions to `QUERIES` that run."""

    def __init__(self, oracle: psycopg.Connection, draw: Random) -> None:
        self._oracle, self._draw = oracle, draw
        self.done: list[str] = []
        self.compared = 0
        self._followers: dict[str, Follower] = {}
        self._may_end: set[str] = set()  # queries whose subscription may have ended
        self._stack = AsyncExitStack()

    async def connect(self, dsn: str) -> None:
        self._dsn = dsn
        self._ours = await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=None)

    async def disconnect(self) -> None:
        await self._stack.aclose()
        self._followers.clear()
        await self._ours.close()

    async def outcome(self, statement: str) -> Answer:
        result = await self._ours.execute(statement.encode())
        assert result.pgresult is not None
        return answer_of(result.pgresult)

    async def both(self, statement: str) -> str | None:
        """Executes a statement on both servers. Returns the fault if the outcomes differ."""
        self.done.append(statement)
        codes = []
        try:
            await self._ours.execute(statement.encode())
            codes.append(None)
        except psycopg.Error as error:
            # Maintained rows depend on the view, or it would read itself, which PostgreSQL refuses where it is read.
            is_replaced = statement.startswith("CREATE OR REPLACE") and error.sqlstate in ("2BP01", "42P17")
            if error.sqlstate == "0A000" or is_replaced:
                self.done[-1] += "  -- refused"
                if self._oracle.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                    await self._ours.execute("ROLLBACK TO p")
                return None
            codes.append((error.sqlstate, str(error)))
        try:
            self._oracle.execute(in_postgresql(statement).encode())
            codes.append(None)
        except psycopg.Error as error:
            codes.append((error.sqlstate, str(error)))
        ours, theirs = codes
        if (ours and ours[0]) != (theirs and theirs[0]):
            return f"{statement}\n  Tidewire   {ours}\n  PostgreSQL {theirs}"
        if ours and self._oracle.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            self._oracle.execute("ROLLBACK TO p")
            await self._ours.execute("ROLLBACK TO p")
        if ours:
            self.done[-1] += f"  -- {ours[0]}"
        elif not re.match("INSERT|UPDATE|DELETE|TRUNCATE|SAVEPOINT", statement):
            self._may_end |= self._followers.keys()
            # A subscription continues, but its query now means something else.
            if "RENAME" in statement:
                self._followers.clear()
        return None

    async def block(self) -> str | None:
        """One transaction of either one statement, or several of which some are undone."""
        draw = self._draw
        statements = [draw.choice((definition, write))(draw) for _ in range(draw.choice((1, 1, 2, 3, 5)))]
        if len(statements) == 1:
            return await self.both(statements[0])
        steps = ["BEGIN"]
        for statement in statements:
            steps += ["SAVEPOINT p", statement]
            if draw.random() < 0.1:
                steps.append("ROLLBACK TO p")
        for step in (*steps, draw.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))):
            wrong = await self.both(step)
            if wrong is not None:
                return wrong
        return None

    async def compare(self) -> str | None:
        """Compares the results of all queries and subscriptions, and subscribes where no subscription runs."""
        for query in QUERIES:
            right = expected(self._oracle, query)
            try:
                found = await self.outcome(query)
            except psycopg.Error as error:
                found = Answer(sqlstate=error.sqlstate, message=str(error))
            if found.sqlstate != "0A000" and (different := difference(query, right, found)) is not None:
                return f"{query}\n    {different}"
            self.compared += 1
        time = await closed_time(self._ours)
        for query, follower in list(self._followers.items()):
            try:
                rows = await follower.at(time)
            except psycopg.Error as error:
                if error.sqlstate not in ENDED or query not in self._may_end:
                    return f"SUBSCRIBE ({query})\n    {error.sqlstate} {error}"
                del self._followers[query]
                continue
            except TimeoutError:
                return f"SUBSCRIBE ({query})\n    has no progress after {time}"
            right = expected(self._oracle, query)
            if right.sqlstate is not None:
                return f"SUBSCRIBE ({query})\n    continues, PostgreSQL: {right}"
            if (different := fault(right, rows)) is not None:
                return f"SUBSCRIBE ({query})\n    {different}"
            self.compared += 1
        self._may_end.clear()
        for query in QUERIES:
            if query not in self._followers and expected(self._oracle, query).sqlstate is None:
                follower = await self._stack.enter_async_context(Follower(self._dsn, query))
                try:
                    await follower.at(time)
                except psycopg.errors.FeatureNotSupported:
                    continue
                self._followers[query] = follower
        return None


async def run(start: Start, restarts: float, oracle: psycopg.Connection, seed: int) -> tuple[str | None, int]:
    """The fault of a history, and the number of results compared. `restarts`: their probability after a transaction."""
    draw = Random(seed)
    history = History(oracle, draw)
    dsn, end = start()
    await history.connect(dsn)
    wrong = None
    try:
        for statement in START:
            wrong = wrong or await history.both(statement)
        for _ in range(BLOCKS):
            wrong = wrong or await history.compare() or await history.block()
            if wrong is not None:
                break
            if draw.random() < restarts:
                end()
                await history.disconnect()
                dsn, end = start()
                await history.connect(dsn)
                history.done.append("-- restart")
        wrong = wrong or await history.compare()
    except Exception as error:
        wrong = repr(error)
    finally:
        await history.disconnect()
        end()
    if wrong is not None:
        wrong = "\n".join((wrong, f"  TIDEWIRE_SEED={seed}", *history.done))
    return wrong, history.compared


def in_process(directory: Path, engine: SparkEngine) -> tuple[str, Callable[[], object]]:
    server = ServerThread(directory, engine)
    return server.dsn(), server.stop


@pytest.mark.ivm
@pytest.mark.timeout(900 * FACTOR)
def test_random_definitions(engine: SparkEngine, postgres: str, tmp_path: Path) -> None:
    faults = []
    compared = 0
    for number in range(HISTORIES * FACTOR):
        seed = SEED * 1_000_000 + number
        with own_schema(postgres, f"definitions_{seed}") as oracle:
            wrong, count = asyncio.run(run(partial(in_process, tmp_path / str(seed), engine), 0.12, oracle, seed))
        compared += count
        if wrong is not None:
            faults.append(wrong)
    print(f"{compared} results compared")
    assert not faults, f"{len(faults)} histories differ\n" + "\n\n".join(faults)
    assert compared > 50 * FACTOR
