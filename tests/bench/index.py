"""Lookups by key through an index, of a small and a large table, compared with the same without one, and
PostgreSQL's."""

from __future__ import annotations

import random
import time
from typing import Any

import psycopg

from tests.bench.servers import Line, Servers, Time, alternate, timed

SIZES = (10_000, 1_000_000)
ROUNDS = 300
LOOKUP = "SELECT k, v, s FROM {} WHERE k = %s"
COMPUTED = "SELECT count(*), sum(v) FROM {} WHERE k = %s"
ROW = "(k int, v int, s text)"
FILL = "INSERT INTO {} SELECT n, n % 1000, 'row ' || n FROM generate_series(1, {}) AS g(n)"

Connection = psycopg.Connection[Any]


def run(servers: Servers) -> list[Line]:
    with (
        psycopg.connect(servers.tidewire.dsn, autocommit=True) as ours,
        psycopg.connect(servers.postgres.dsn, autocommit=True) as theirs,
    ):
        for size in SIZES:
            for connection, table in ((ours, f"indexed_{size}"), (ours, f"plain_{size}"), (theirs, f"indexed_{size}")):
                connection.execute(f"CREATE TABLE {table} {ROW}".encode())
                connection.execute(FILL.format(table, size).encode())
                if table.startswith("indexed"):
                    connection.execute(f"CREATE INDEX ON {table} (k)".encode())
        theirs.execute("VACUUM ANALYZE")
        hydrated = "SELECT count(*) FROM mz_internal.mz_dataflows WHERE hydrated"
        while ours.execute(hydrated).fetchall() != [(len(SIZES),)]:
            time.sleep(0.1)
        lines = [line for size in SIZES for line in _of_size(ours, theirs, size)]
        few, many = (_lookup(ours, f"indexed_{size}", size) for size in SIZES)
        lines.append(_line(f"by index, {SIZES[1]:,} rows / {SIZES[0]:,}", many, few, "does not grow"))
        return lines


def _of_size(ours: Connection, theirs: Connection, size: int) -> list[Line]:
    indexed, plain = _lookup(ours, f"indexed_{size}", size), _lookup(ours, f"plain_{size}", size)
    postgres = _lookup(theirs, f"indexed_{size}", size)
    computed, all = (_lookup(ours, f"{kind}_{size}", size, COMPUTED) for kind in ("indexed", "plain"))
    return [
        _line(f"{size:,} rows, by index / without", indexed, plain, "below 1 x" if size > SIZES[0] else ""),
        _line(f"{size:,} rows, by index / PostgreSQL's", indexed, postgres, ""),
        _line(f"{size:,} rows, an aggregate by index / without", computed, all, "at most 1 x", 60),
    ]


def _lookup(connection: Connection, table: str, size: int, sql: str = LOOKUP) -> Time:
    """Selects one existing row by its key, with a prepared statement."""
    text, chosen = sql.format(table).encode(), random.Random(1)

    def look_up() -> None:
        assert len(connection.execute(text, (chosen.randrange(1, size),), prepare=True).fetchall()) == 1

    look_up()
    return lambda: timed(look_up)


def _line(name: str, ours: Time, theirs: Time, target: str, rounds: int = ROUNDS) -> Line:
    a, b, ratio = alternate(ours, theirs, rounds)
    return Line(name, f"{a * 1e3:.2f} ms", f"{b * 1e3:.2f} ms", f"{ratio:.2f} x", target)
