"""Rows written per second: single-row INSERTs by pgbench and by psycopg's executemany, INSERT of many rows, COPY.

Both servers sync each commit to the same disk.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import psycopg

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers, timed

ROUNDS = 5
ONE_ROW = "\\set x random(1, 1000000)\nINSERT INTO inserted VALUES (:x, 5, 'hello', 1.5);\n"
STATEMENT = "INSERT INTO inserted VALUES (%s, %s, %s, %s)"
MANY, LITERALS, COPIED = 1_000, 5_000, 500_000


def executemany(connection: psycopg.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(STATEMENT, [(i, i % 100, "hello", 1.5) for i in range(MANY)])


def single_rows(dsn: str, mode: str, clients: int) -> float:
    return pgbench(dsn, ONE_ROW, clients=clients, mode=mode).rate


def literals(connection: psycopg.Connection) -> None:
    rows = ",".join(f"({10**7 + i},{i % 100},'hello',1.5)" for i in range(LITERALS))
    connection.execute(f"INSERT INTO inserted VALUES {rows}".encode())


def copy(connection: psycopg.Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY inserted FROM STDIN") as data:
        data.write("".join(f"{i}\t{i % 1000}\thello{i % 77}\t{i * 0.5}\n" for i in range(COPIED)))


def per_second(rows: int, write: Callable[[psycopg.Connection], None]) -> Callable[[str], float]:
    def measure(dsn: str) -> float:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return rows / timed(lambda: write(connection))

    return measure


CASES: dict[str, tuple[Callable[[str], float], str]] = {
    "INSERT of a row, prepared, 1 connection": (lambda dsn: single_rows(dsn, "prepared", 1), "at least 0.5 x"),
    "INSERT of a row, prepared, 16 connections": (lambda dsn: single_rows(dsn, "prepared", 16), "at least 0.8 x"),
    "INSERT of a row, simple, 1 connection": (lambda dsn: single_rows(dsn, "simple", 1), ""),
    "INSERT of a row, simple, 16 connections": (lambda dsn: single_rows(dsn, "simple", 16), ""),
    "executemany of 1,000 rows": (per_second(MANY, executemany), "at least 0.5 x"),
    "INSERT ... VALUES of 5,000 rows": (per_second(LITERALS, literals), "166,000/s (30 ms)"),
    "COPY FROM of 500,000 rows": (per_second(COPIED, copy), "at least 1 x"),
}


def run(servers: Servers) -> list[Line]:
    dsns = servers.tidewire.dsn, servers.postgres.dsn
    for dsn in dsns:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE inserted (id bigint NOT NULL, k int NOT NULL, v text, x double precision)")
    lines = []
    for name, (measure, target) in CASES.items():
        pairs = []
        for number in range(ROUNDS):
            found = {side: measure(dsns[side]) for side in ((0, 1) if number % 2 else (1, 0))}
            pairs.append((found[0], found[1]))
        ours, theirs, ratio = (
            statistics.median(values) for values in (*zip(*pairs, strict=True), [a / b for a, b in pairs])
        )
        lines.append(Line(name, f"{ours:,.0f} rows/s", f"{theirs:,.0f} rows/s", f"{ratio:.2f} x", target))
    return lines
