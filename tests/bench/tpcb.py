"""pgbench's default script, which is like TPC-B: transactions per second of 1 and 8 clients, simple and prepared.

Each transaction has three UPDATEs by key, a SELECT by key and an INSERT. All of them update the only row of
pgbench_branches (scale 1), so that they wait for each other.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile

import psycopg

from tests.bench.servers import Line, Servers
from tests.fix_postgres import binaries

ROUNDS = 3
SECONDS = 5
TARGET = "at least 0.1 x"
KEYS = (("branches", "bid"), ("tellers", "tid"), ("accounts", "aid"))


def run(servers: Servers) -> list[Line]:
    """PostgreSQL has its primary keys; Tidewire has indexes on the same columns."""
    sides = (servers.tidewire.dsn, servers.postgres.dsn)
    for dsn in sides:
        _pgbench(dsn, "-i", "-q", "-I", "dtg")
    with psycopg.connect(sides[0], autocommit=True) as connection:
        for table, key in KEYS:
            connection.execute(f"CREATE INDEX ON pgbench_{table} ({key})".encode())
    with psycopg.connect(sides[1], autocommit=True) as connection:
        for table, key in KEYS:
            connection.execute(f"ALTER TABLE pgbench_{table} ADD PRIMARY KEY ({key})".encode())
    lines = []
    for mode in ("simple", "prepared"):
        for clients in (1, 8):
            _rate(sides[0], mode, clients)  # the JVM compiles the statements' code
            pairs = [tuple(_rate(dsn, mode, clients) for dsn in sides) for _ in range(ROUNDS)]
            ours, theirs, ratio = (
                statistics.median(values) for values in zip(*((a, b, a / b) for a, b in pairs), strict=True)
            )
            case = f"pgbench's default script, {mode}, {clients} client{'s' if clients > 1 else ''}"
            lines.append(Line(case, f"{ours:,.0f}/s", f"{theirs:,.0f}/s", f"{ratio:.3f} x", TARGET))
    return lines


def _rate(dsn: str, mode: str, clients: int) -> float:
    arguments = ("-n", "-M", mode, "-c", str(clients), "-T", str(SECONDS), "--max-tries", "1000")
    rate = re.search(r"tps = ([0-9.]+)", _pgbench(dsn, *arguments))
    assert rate is not None
    return float(rate[1])


def _pgbench(dsn: str, *arguments: str) -> str:
    command = [str(binaries() / "pgbench"), *arguments, dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()).stdout
