"""pgbench's default script, which is like TPC-B: transactions per second of 1 and 8 clients, simple and prepared.

Each transaction has three UPDATEs by key, a SELECT by key and an INSERT. All of them update the only row of
pgbench_branches (scale 1), so that they wait for each other.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile

from tests.bench.servers import Servers, Table
from tests.fix_postgres import binaries

ROUNDS = 3
SECONDS = 4


def run(servers: Servers) -> list[Table]:
    sides = (servers.tidewire.dsn, servers.postgres.dsn)
    for dsn in sides:
        _pgbench(dsn, "-i", "-q")
    lines = []
    for mode in ("simple", "prepared"):
        for clients in (1, 8):
            _rate(sides[0], mode, clients)  # the JVM compiles the statements' code
            pairs = [tuple(_rate(dsn, mode, clients) for dsn in sides) for _ in range(ROUNDS)]
            ours, theirs, ratio = (
                statistics.median(values) for values in zip(*((a, b, a / b) for a, b in pairs), strict=True)
            )
            lines.append(
                (
                    f"{mode}, {clients} client{'s' if clients > 1 else ''}",
                    f"{ours:,.0f}",
                    f"{theirs:,.0f}",
                    f"{ratio:.3f}",
                )
            )
    header = ("protocol", "Tidewire", "PostgreSQL", "ratio")
    return [Table("tpcb", "pgbench's default script, in transactions per second", header, lines)]


def _rate(dsn: str, mode: str, clients: int) -> float:
    arguments = ("-n", "-M", mode, "-c", str(clients), "-T", str(SECONDS), "--max-tries", "1000")
    rate = re.search(r"tps = ([0-9.]+)", _pgbench(dsn, *arguments))
    assert rate is not None
    return float(rate[1])


def _pgbench(dsn: str, *arguments: str) -> str:
    command = [str(binaries() / "pgbench"), *arguments, dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()).stdout
