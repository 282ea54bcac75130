"""Subscriptions that begin and end all the time, so that their dataflows share arrangements of different ages.

Half of them are cancelled while they begin. The tables keep almost no history by themselves, and an index on one of
them is created and dropped meanwhile. Each subscription receives the rows of its query as of the last progress.
TIDEWIRE_SEED repeats the statements of a failure, although not their interleaving.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import errors

pytestmark = pytest.mark.ivm

SEED = int(os.environ.get("TIDEWIRE_SEED") or random.randrange(2**32))
COMPARISONS = max(1, int(3 * float(os.environ.get("TIDEWIRE_EXAMPLES", "1"))))  # of each subscriber
SUBSCRIBERS, WRITERS = 8, 3

QUERIES = (
    "SELECT a.k, a.v, b.w FROM a JOIN b USING (k)",
    "SELECT a.k, b.w FROM a LEFT JOIN b ON a.k = b.k WHERE a.v > 2",
    "SELECT k, count(*), sum(v) FROM a GROUP BY k",
    "SELECT k, max(v) FROM a GROUP BY k",
    "SELECT DISTINCT v FROM a",
    "SELECT k FROM a UNION SELECT k FROM b",
    "SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM a WHERE v < 3",
    "SELECT k, v FROM m",
)
Row = tuple[Any, ...]


def write(dsn: str, dice: random.Random, ended: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not ended.is_set():
            k, v = dice.randrange(6), dice.randrange(9)
            statement = dice.choice(
                (
                    f"INSERT INTO a VALUES ({k}, {v})",
                    f"UPDATE a SET v = v + 1 WHERE k = {k}",
                    "DELETE FROM a WHERE v > 8",
                    f"DELETE FROM a WHERE k = {k} AND v = {v}",
                    f"INSERT INTO b VALUES ({k}, '{v}')",
                    f"DELETE FROM b WHERE k = {k}",
                    "INSERT INTO a SELECT k, 1 FROM b",
                )
            )
            connection.execute(statement.encode())


def define(dsn: str, ended: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not ended.is_set():
            connection.execute("CREATE INDEX i ON a (k)")
            connection.execute("DROP INDEX i")


def subscribe(dsn: str, dice: random.Random, ended: threading.Event) -> None:
    compared = 0
    while compared < COMPARISONS and not ended.is_set():
        query = dice.choice(QUERIES)
        with psycopg.connect(dsn, autocommit=True) as connection:
            if dice.random() < 0.5:
                connection.execute(f"SET statement_timeout = {dice.randrange(1, 40)}".encode())
                with suppress(errors.QueryCanceled):
                    received(connection, query, dice)
                continue
            rows, end = received(connection, query, dice)
            try:
                found = connection.execute(f"{query} AS OF {end - 1}".encode()).fetchall()
            except errors.DataException:
                continue  # this time cannot be read any more
        assert rows == Counter(found), f"TIDEWIRE_SEED={SEED}: {query} at {end - 1}"
        compared += 1


def received(connection: psycopg.Connection, query: str, dice: random.Random) -> tuple[Counter[Row], int]:
    """The rows that a short subscription receives, and the progress that closes them."""
    rows: Counter[Row] = Counter()
    pending: list[Row] = []
    start = end = 0
    with connection.transaction():
        connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS)".encode())
        fetches = dice.randrange(1, 10)
        while fetches > 0 or end <= start:
            fetches -= 1
            count, timeout_ms = dice.choice(("ALL", "1", "20")), dice.choice((0, 50, 500))
            for time, progressed, diff, *row in connection.execute(
                f"FETCH {count} c WITH (TIMEOUT '{timeout_ms} ms')".encode()
            ):
                assert time >= end
                if progressed:
                    start, end = start or int(time), int(time)
                    for other, change in pending:
                        rows[other] += change
                    pending.clear()
                    assert all(count >= 0 for count in rows.values())
                else:
                    pending.append((tuple(row), diff))
    return +rows, end


@pytest.mark.long
def test_each_subscription_receives_the_rows_of_its_query(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (k int, v int) WITH (RETAIN HISTORY FOR '1 ms')")
        connection.execute("CREATE TABLE b (k int, w text) WITH (RETAIN HISTORY FOR '1 ms')")
        connection.execute(
            "CREATE MATERIALIZED VIEW m WITH (RETAIN HISTORY FOR '1 ms') AS SELECT k, v FROM a WHERE v < 5"
        )
        connection.execute("INSERT INTO a SELECT n % 6, n % 9 FROM generate_series(1, 50) n")
    ended = threading.Event()

    def end_after_failure(task: Future[None]) -> None:
        if task.exception() is not None:
            ended.set()

    with ThreadPoolExecutor(SUBSCRIBERS + WRITERS + 1) as threads:
        others = [threads.submit(write, dsn, random.Random(f"{SEED} w{n}"), ended) for n in range(WRITERS)]
        others.append(threads.submit(define, dsn, ended))
        subscribers = [threads.submit(subscribe, dsn, random.Random(f"{SEED} s{n}"), ended) for n in range(SUBSCRIBERS)]
        for task in (*others, *subscribers):
            task.add_done_callback(end_after_failure)
        wait(subscribers)
        ended.set()
    for task in (*others, *subscribers):
        task.result()
