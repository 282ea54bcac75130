"""pgbench's default script, which is like TPC-B: transactions per second of 1 and 8 clients, simple and prepared.

Each transaction has three UPDATEs by key, a SELECT by key and an INSERT. All of them update the only row of
pgbench_branches (scale 1), so that they wait for each other. On a busy machine the ratio and the processor time are
more reliable than the rates.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile

from tests.bench.processes import tree_cpu_s
from tests.bench.servers import Servers, Table
from tests.fix_postgres import binaries

ROUNDS = 3
SECONDS = 3
WARM_UP_SECONDS = 4


def run(servers: Servers) -> list[Table]:
    tidewire, postgres = servers.tidewire, servers.postgres
    for server in (tidewire, postgres):
        _pgbench(server.dsn, "-i", "-q")
    lines = []
    for mode in ("simple", "prepared"):
        for clients in (1, 8):
            _measured(tidewire.dsn, mode, clients, WARM_UP_SECONDS)  # the JVM compiles the statements' code
            pairs, used_s, count = [], 0.0, 0
            for _ in range(ROUNDS):
                begun_s = tree_cpu_s(tidewire.process.pid)
                ours, done = _measured(tidewire.dsn, mode, clients, SECONDS)
                used_s, count = used_s + tree_cpu_s(tidewire.process.pid) - begun_s, count + done
                pairs.append((ours, _measured(postgres.dsn, mode, clients, SECONDS)[0]))
            medians = [statistics.median(values) for values in zip(*((a, b, a / b) for a, b in pairs), strict=True)]
            case = f"{mode}, {clients} client{'s' if clients > 1 else ''}"
            rates = (f"{medians[0]:,.0f}", f"{medians[1]:,.0f}", f"{medians[2]:.3f}")
            lines.append((case, *rates, f"{used_s / count * 1e3:.1f} ms"))
    header = ("protocol", "Tidewire", "PostgreSQL", "ratio", "processor time of Tidewire and Spark per transaction")
    return [Table("tpcb", "pgbench's default script, in transactions per second", header, lines)]


def _measured(dsn: str, mode: str, clients: int, seconds: int) -> tuple[float, int]:
    """Transactions per second, and their number."""
    output = _pgbench(dsn, "-n", "-M", mode, "-c", str(clients), "-T", str(seconds), "--max-tries", "1000")
    rate, count = re.search(r"tps = ([0-9.]+)", output), re.search(r"actually processed: (\d+)", output)
    assert rate is not None, output
    assert count is not None, output
    return float(rate[1]), int(count[1])


def _pgbench(dsn: str, *arguments: str) -> str:
    command = [str(binaries() / "pgbench"), *arguments, dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()).stdout
