"""Runs PostgreSQL's pgbench."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fix_postgres import binaries

SECONDS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """`rate`: transactions per second. `count`: their number."""

    rate: float
    count: int


def pgbench(
    dsn: str,
    script: str,
    *,
    clients: int,
    seconds: int = SECONDS,
    mode: str = "simple",
    programs: Path | None = None,
    reconnect: bool = False,
) -> Outcome:
    """Executes a script in a loop. `mode`: `simple`, `extended` or `prepared`.

    `programs`: the directory of pgbench, by default the wheel's. `reconnect`: each execution has its own connection.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [
                str((programs or binaries()) / "pgbench"),
                *(("-C",) if reconnect else ()),
                *("-n", "-M", mode, "-c", str(clients), "-j", "1", "-T", str(seconds)),
                *("-f", file.name, dsn),
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(tempfile.gettempdir()),
        )
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    count = re.search(r"actually processed: (\d+)", done.stdout)
    assert rate is not None, done.stdout + done.stderr
    assert count is not None, done.stdout + done.stderr
    return Outcome(float(rate[1]), int(count[1]))
