"""Round trips per second of constant SELECTs over 32 connections, measured by PostgreSQL's pgbench."""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.bench.servers import Line, Servers
from tests.fix_postgres import binaries

CONNECTIONS = 32
SECONDS = 4
ROUNDS = 3
SCRIPTS = {
    "SELECT 1,000 distinct constants, simple": ("simple", "\\set x random(1, 1000)\nSELECT :x;\n"),
    "SELECT $1::int, prepared": ("prepared", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
    "SELECT $1::int, extended": ("extended", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
}


def rate(dsn: str, mode: str, script: str, connections: int = CONNECTIONS) -> float:
    """Transactions per second."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [
                str(binaries() / "pgbench"),
                *("-n", "-M", mode, "-c", str(connections), "-j", "1", "-T", str(SECONDS)),
                *("-f", file.name, dsn),
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(tempfile.gettempdir()),
        )
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1])


def run(servers: Servers) -> list[Line]:
    lines = []
    for name, (mode, script) in SCRIPTS.items():
        ours, theirs = [], []
        for number in range(ROUNDS):
            for side in (0, 1) if number % 2 else (1, 0):
                dsn = servers.tidewire.dsn if side == 0 else servers.postgres.dsn
                (ours if side == 0 else theirs).append(rate(dsn, mode, script))
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
