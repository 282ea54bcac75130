"""Random transactions over tables with all replica identities, and their invariants.

Every transaction adds one row to `journal` for its version of `total`, which has the sum of all balances, too.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg

from tests.server.ingest.postgres.harness import Source

ACCOUNTS = 50
TABLES = ("keyed", "indexed", "whole", "parts", "journal", "total")

SETUP = f"""
CREATE TABLE keyed (id int4 PRIMARY KEY, balance int8 NOT NULL, note text);
ALTER TABLE keyed ALTER note SET STORAGE EXTERNAL;
CREATE TABLE indexed (a int4 NOT NULL, b text NOT NULL, balance int8 NOT NULL);
CREATE UNIQUE INDEX own ON indexed (b, a);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX own;
CREATE TABLE whole (id int4, balance int8 NOT NULL, note text); ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE whole ALTER note SET STORAGE EXTERNAL;
CREATE TABLE parts (id int4 PRIMARY KEY, balance int8 NOT NULL) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE journal (n int8);
CREATE TABLE total (one bool PRIMARY KEY, n int8 NOT NULL, balances int8);
INSERT INTO total VALUES (true, 0, 0);
INSERT INTO keyed SELECT i, 0, repeat('k', 3000) FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO indexed SELECT i, 'b', 0 FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO whole SELECT i % 7, 0, repeat('w', 3000) FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO parts SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) i;
CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root = true)
"""


def transaction(choice: random.Random) -> list[str]:
    """The statements of a transaction."""

    def number() -> int:
        return choice.randint(1, ACCOUNTS)

    statements = ["UPDATE total SET n = n + 1", "INSERT INTO journal SELECT n FROM total"]
    for _ in range(choice.choice((1, 1, 1, 2, 5, 40))):
        amount = choice.randint(1, 9)
        statements += choice.sample(_changes(number, -amount), 1) + choice.sample(_changes(number, amount), 1)
        statements += choice.choice(([], [], [_neutral(choice, number)]))
    sums = " + ".join(f"(SELECT coalesce(sum(balance), 0) FROM {table})" for table, _ in _BALANCES)
    return [*statements, f"UPDATE total SET balances = {sums}"]


def _changes(number: Any, amount: int) -> list[str]:
    """Statements that change a balance by an amount."""
    some = f"(SELECT min(id) FROM {{}} WHERE id >= {number()} % 40)"
    missing = "(SELECT g FROM generate_series(1, 1000) g WHERE g NOT IN (SELECT id FROM {}) ORDER BY 1 LIMIT 1)"
    return [
        f"UPDATE keyed SET balance = balance + {amount} WHERE id = {some.format('keyed')}",
        f"INSERT INTO keyed SELECT {missing.format('keyed')}, {amount}, repeat('n', {number()} * 100)",
        f"UPDATE indexed SET balance = balance + {amount} WHERE (a, b) = (SELECT a, b FROM indexed LIMIT 1)",
        f"INSERT INTO whole VALUES ({number()}, {amount}, NULL)",
        f"UPDATE whole SET balance = balance + {amount} WHERE ctid = (SELECT min(ctid) FROM whole)",
        f"UPDATE parts SET balance = balance + {amount} WHERE id = {some.format('parts')}",
        f"INSERT INTO parts SELECT {missing.format('parts')}, {amount}",
    ]


def _neutral(choice: random.Random, number: Any) -> str:
    """A statement that changes no balance."""
    return choice.choice(
        (
            f"DELETE FROM keyed WHERE balance = 0 AND id > {number()}",
            f"UPDATE keyed SET id = id + 1000 WHERE id = {number()} AND NOT EXISTS (SELECT FROM keyed WHERE id > 1000)",
            "UPDATE keyed SET id = (SELECT g FROM generate_series(1, 999) g WHERE g NOT IN (SELECT id FROM keyed)"
            " LIMIT 1) WHERE id > 1000",
            f"UPDATE keyed SET note = repeat('r', {number()} * 100) WHERE id % 7 = {number()} % 7",
            f"UPDATE indexed SET b = b || 'x' WHERE a = {number()} AND length(b) < 5",
            f"UPDATE indexed SET b = 'b' WHERE a = {number()}",
            "DELETE FROM whole WHERE balance = 0",
            f"UPDATE whole SET id = id + 1 WHERE id % 5 = {number()} % 5",
            f"UPDATE parts SET id = id + 2000 WHERE id = {number()} AND NOT EXISTS (SELECT FROM parts WHERE id > 1000)",
            "UPDATE parts SET id = id - 2000 + 100 WHERE id > 2000 AND NOT EXISTS (SELECT FROM parts WHERE id = 100)",
        )
    )


async def work(dsn: str, seed: int, transactions: int) -> None:
    """Executes transactions. Waits for PostgreSQL while it recovers from a crash."""
    choice = random.Random(seed)
    connection = None
    try:
        for _ in range(transactions):
            statements = ";".join(transaction(choice))
            is_rolled_back = choice.random() < 0.1
            while True:
                try:
                    connection = connection or await asyncpg.connect(dsn)
                    async with connection.transaction():
                        await connection.execute("LOCK TABLE total")
                        await connection.execute(statements)
                        if is_rolled_back:
                            raise _RolledBack
                    break
                except (_RolledBack, asyncpg.IntegrityConstraintViolationError):
                    break
                except _CRASHED:
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    await asyncio.sleep(0.05)
    finally:
        if connection is not None:
            connection.terminate()


_CRASHED = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError, OSError)


class _RolledBack(Exception):
    pass


async def check_all_times(source: Source) -> None:
    """At each time, the collections are those of a transaction's end."""
    for time in sorted({time for name in TABLES for time in source.times(name)}):
        sums = [sum((await source.table(name, time))[column].to_pylist()) for name, column in _BALANCES]
        ((_, count, balances),) = await source.rows("total", time)
        assert sum(sums) == balances, time
        assert sorted(n for (n,) in await source.rows("journal", time)) == list(range(1, count + 1))  # type: ignore[call-overload]


_BALANCES = (("keyed", "c1"), ("indexed", "c2"), ("whole", "c1"), ("parts", "c1"))
