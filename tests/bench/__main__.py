"""Runs the benchmarks that are named on the command line, by default all, and prints tables."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from types import ModuleType

from server.runtime.allocator import configure_allocator

if __name__ == "__main__":  # before an import of pyarrow: many benchmarks run parts of the server in this process
    configure_allocator(os.environ)

from tests.bench import (
    backfill,
    busy_source,
    cdcv2,
    cdcv2_topics,
    comparison,
    copy_out,
    deltas,
    failover,
    fan_out,
    freshness,
    holds,
    incremental,
    index,
    inserts,
    kafka_decode,
    keys,
    latency,
    logins,
    many,
    nexmark,
    planning,
    postgres_source,
    probing,
    round_trips,
    select,
    sinks,
    skew,
    step,
    tpcb,
    tpch,
    upsert_state,
    writes,
)
from tests.bench.servers import Line, Table, servers

BENCHMARKS: dict[str, ModuleType] = {
    "backfill": backfill,
    "busy_source": busy_source,
    "cdcv2": cdcv2,
    "cdcv2_topics": cdcv2_topics,
    "copy_out": copy_out,
    "latency": latency,
    "round_trips": round_trips,
    "logins": logins,
    "inserts": inserts,
    "kafka_decode": kafka_decode,
    "keys": keys,
    "step": step,
    "incremental": incremental,
    "index": index,
    "comparison": comparison,
    "probing": probing,
    "tpcb": tpcb,
    "tpch": tpch,
    "upsert_state": upsert_state,
    "skew": skew,
    "deltas": deltas,
    "failover": failover,
    "fan_out": fan_out,
    "freshness": freshness,
    "many": many,
    "nexmark": nexmark,
    "planning": planning,
    "postgres_source": postgres_source,
    "select": select,
    "sinks": sinks,
    "holds": holds,
    "writes": writes,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--markdown", action="store_true", help="print the tables as documentation has them")
    parser.add_argument("--into", type=Path, help="a page of documentation whose tables are replaced by the new ones")
    for name, module in BENCHMARKS.items():
        if hasattr(module, "add_arguments"):
            module.add_arguments(parser.add_argument_group(name))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    lines: list[Line] = []
    print(f"Python {platform.python_version()}, {platform.machine()}")
    for name in options.names or list(BENCHMARKS):
        module = BENCHMARKS[name]
        with servers() as pair:
            found = module.run(pair, options) if hasattr(module, "add_arguments") else module.run(pair)
        for part in found:
            if isinstance(part, Table):
                show(part, options.markdown)
                if options.into is not None:
                    options.into.write_text(part.into(options.into.read_text()))
            else:
                lines.append(part)
    if lines:
        header = ("benchmark", "Tidewire", "compared with", "ratio", "target")
        rows = [(line.name, line.ours, line.theirs, line.ratio, line.target) for line in lines]
        show(Table("others", "Comparisons with others", header, rows), options.markdown)


def show(table: Table, markdown: bool) -> None:
    print(f"\n{table.about}:\n", flush=True)
    if markdown:
        print(table.markdown(), flush=True)
        return
    lines = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in lines) for i in range(len(table.header))]
    for row in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    main()
