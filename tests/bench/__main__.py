"""Runs the benchmarks named on the command line, all without a name, and prints a table."""

from __future__ import annotations

import argparse
import platform
from types import ModuleType

from tests.bench import copy_out, fan_out, holds, incremental, latency, planning, round_trips, select, tick
from tests.bench.servers import Line, servers

BENCHMARKS: dict[str, ModuleType] = {
    "copy_out": copy_out,
    "latency": latency,
    "round_trips": round_trips,
    "tick": tick,
    "incremental": incremental,
    "fan_out": fan_out,
    "planning": planning,
    "select": select,
    "holds": holds,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    lines: list[Line] = []
    for name in names:
        with servers() as pair:
            lines += BENCHMARKS[name].run(pair)
    header = Line("benchmark", "Tidewire", "beside", "ratio", "target")
    rows = [(line.name, line.ours, line.theirs, line.ratio, line.target) for line in (header, *lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    print(f"Python {platform.python_version()}, {platform.machine()}")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
