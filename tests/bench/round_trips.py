"""Round trips per second of constant SELECTs over 32 connections, measured by PostgreSQL's pgbench."""

from __future__ import annotations

import statistics

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers

CONNECTIONS = 32
ROUNDS = 3
SCRIPTS = {
    "SELECT 1,000 distinct constants, simple": ("simple", "\\set x random(1, 1000)\nSELECT :x;\n"),
    "SELECT $1::int, prepared": ("prepared", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
    "SELECT $1::int, extended": ("extended", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
}


def run(servers: Servers) -> list[Line]:
    lines = []
    for name, (mode, script) in SCRIPTS.items():
        ours, theirs = [], []
        for number in range(ROUNDS):
            for side in (0, 1) if number % 2 else (1, 0):
                dsn = servers.tidewire.dsn if side == 0 else servers.postgres.dsn
                (ours if side == 0 else theirs).append(pgbench(dsn, script, clients=CONNECTIONS, mode=mode).rate)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        lines.append(
            Line(
                f"{name}, {CONNECTIONS} connections",
                f"{statistics.median(ours):,.0f}/s",
                f"{statistics.median(theirs):,.0f}/s",
                f"{ratio:.2f} x",
                "at least 0.8 x PostgreSQL",
            )
        )
    return lines
