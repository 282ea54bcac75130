"""Freshness of maintained queries while one client commits at a fixed rate, measured over the wire.

Each case is a rate of commits, and a number of rows in each, over a table of `--freshness-base` rows.
"""

from __future__ import annotations

import argparse
import io
import time
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from pyarrow import csv

from tests.bench.processes import cpu_s
from tests.bench.servers import Servers, Table
from tests.bench.subscriber import Subscriber, freshness

QUERIES = {
    "table": "f",
    "filter": "(SELECT id, k, x * 2 AS y FROM f WHERE x >= 0)",
    "join": "(SELECT f.id, d.name, f.x FROM f JOIN d USING (k))",
    "left join": "(SELECT f.id, d.name, f.x FROM f LEFT JOIN d USING (k))",
    "sum and count": "(SELECT k, count(*) AS n, sum(x) AS s FROM f GROUP BY k)",
    "sum of numerics": "(SELECT k, count(*) AS n, sum(x::numeric(12, 2)) AS s FROM f GROUP BY k)",
    "sum of floats": "(SELECT k, count(*) AS n, sum(y) AS s FROM f GROUP BY k)",
    "max": "(SELECT k, max(id) AS m FROM f GROUP BY k)",
    "top 10": "(SELECT id, x FROM f ORDER BY x DESC, id LIMIT 10)",
    "DISTINCT": "(SELECT DISTINCT k FROM f)",
    "join, sum and max": "(SELECT name, count(*), sum(x) AS s, max(id) AS m FROM f JOIN d USING (k) GROUP BY name)",
}
LOADS = "20x100,500x1,20x5000"
COPIED_ROWS = 200  # from this number of rows on, a commit is a COPY
WARM_S, CAUGHT_UP_S = 4.0, 60.0


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--freshness-base", type=int, default=1_000_000, help="rows of the table (%(default)s)")
    parser.add_argument("--groups", type=int, default=1_000, help="keys of the table (%(default)s)")
    parser.add_argument("--loads", default=LOADS, help="commits per second x rows, comma-separated (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each load (%(default)s)")
    parser.add_argument("--subscribed", default="", help="queries whose names begin so, comma-separated (all)")


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    rows = []
    with psycopg.connect(servers.tidewire.dsn, autocommit=True) as writer:
        prefixes = tuple(options.subscribed.split(","))
        for load in options.loads.split(","):
            rate, size = map(int, load.split("x"))
            for name, query in QUERIES.items():
                if name.startswith(prefixes):
                    table = Written(writer, options.freshness_base, options.groups)  # a former load's rows are gone
                    rows.append((f"{rate} x {size:,}", name, *_measured(servers, table, query, rate, size, options)))
    header = ("commits/s x rows", "query", "commits/s reached", "freshness p50", "p99", "last", "CPU per commit")
    about = (
        f"Freshness over {options.freshness_base:,} rows and {options.groups:,} keys; `last`: that of the last commit; "
        "processor time of the server and Spark"
    )
    return [Table("freshness", about, header, rows)]


class Written:
    """The table that is written."""

    def __init__(self, connection: psycopg.Connection[Any], base: int, groups: int) -> None:
        self._connection = connection
        self._groups = groups
        self._next = base
        connection.execute("DROP TABLE IF EXISTS f, d")
        connection.execute("CREATE TABLE f (id bigint NOT NULL, k int NOT NULL, x bigint, y double precision)")
        connection.execute("CREATE TABLE d (k int NOT NULL, name text)")
        connection.execute(f"INSERT INTO d SELECT g, 'n' || g FROM generate_series(0, {groups - 1}) g".encode())
        ids = np.arange(base)
        self._copy(ids, ids % groups, ids)

    def commit(self, size: int) -> None:
        ids = np.arange(self._next, self._next + size)
        self._next += size
        keys = ids * 7919 % self._groups
        if size >= COPIED_ROWS:
            self._copy(ids, keys, np.full(size, 3))
        else:
            rows = [(i, k, 3, i / 8) for i, k in zip(ids.tolist(), keys.tolist(), strict=True)]
            self._connection.execute(f"INSERT INTO f VALUES {','.join(map(str, rows))}".encode())

    def _copy(self, ids: np.ndarray[Any, Any], keys: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> None:
        text = io.BytesIO()
        options = csv.WriteOptions(include_header=False, delimiter="\t")
        csv.write_csv(pa.table({"id": ids, "k": keys, "x": x, "y": ids / 8}), text, options)
        with self._connection.cursor().copy("COPY f FROM STDIN") as copy:
            copy.write(text.getbuffer())


def _measured(
    servers: Servers, table: Written, query: str, rate: int, size: int, options: argparse.Namespace
) -> tuple[str, ...]:
    subscriber = Subscriber(servers.tidewire.port, query)
    _commits(table, rate, size, WARM_S)
    time.sleep(1)
    pids = [servers.tidewire.process.pid, int(servers.tidewire.await_event("Spark ready")["pid"])]
    before = sum(map(cpu_s, pids))
    begun = time.time()
    acknowledged = _commits(table, rate, size, options.seconds)
    reached = len(acknowledged) / (acknowledged[-1] - begun)
    progress = subscriber.progress(acknowledged[-1], CAUGHT_UP_S)
    used = sum(map(cpu_s, pids)) - before
    fresh = freshness(acknowledged, progress)
    if len(fresh) < len(acknowledged):
        return (f"{reached:.0f}", "-", "-", f"more than {CAUGHT_UP_S:.0f} s", "-")
    ordered = sorted(fresh)
    p50, p99, last = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], fresh[-1]
    cells = (f"{value * 1e3:,.0f} ms" for value in (p50, p99, last))
    return (f"{reached:.0f}", *cells, f"{used / len(acknowledged) * 1e3:.1f} ms")


def _commits(table: Written, rate: int, size: int, seconds: float) -> list[float]:
    """Commits at a rate, or as fast as the server acknowledges. Returns the times of the acknowledgements."""
    begun, acknowledged = time.time(), []
    for number in range(int(rate * seconds)):
        pause = begun + number / rate - time.time()
        if pause > 0:
            time.sleep(pause)
        table.commit(size)
        acknowledged.append(time.time())
        if acknowledged[-1] > begun + 2 * seconds:
            break
    return acknowledged
