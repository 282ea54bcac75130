"""Throughput of Nexmark's queries, compared with Apache Flink and Pathway on the same events.

Tidewire receives the events by COPY, in transactions of `--transactions` events, as fast as it accepts them, while a
client reads the SUBSCRIBE to the query. The time is that from the first COPY to the progress that closes the last
transaction. Flink and Pathway read the same events from files and discard the result: Flink with mini-batches and
without transactions, Pathway with a transaction per file of the largest number of events. Their start is not counted.
Tidewire and Flink run each query twice; the second run is reported, because JVMs compile code during the first one.
`--flink-python` and `--nexmark-pathway-python` name Pythons that have them: `python -m venv DIR && DIR/bin/pip install
apache-flink`, or `pathway`.

A cell has events per second and, in parentheses, events per second of processor time. For Tidewire this is the time of
the server, Spark and Spark's Python workers, with the wire, the log and the fsync of each commit. The ratios compare
events per second of processor time. The queries are those of `others/nexmark_queries.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.bench.nexmark_events import Events
from tests.bench.others.nexmark_queries import COLUMNS, QUERIES, SIDE_COLUMNS, SIDE_INPUT
from tests.bench.processes import tree_cpu_s
from tests.bench.servers import Servers, Table
from tests.bench.subscriber import Subscriber, freshness

PROGRAMS = Path(__file__).parent / "others"
CAUGHT_UP_S = 600.0
OTHERS_S = 3_600.0


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--events", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--transactions", default="1000,10000", help="events of a transaction (%(default)s)")
    parser.add_argument("--nexmark", default="", help="queries, comma-separated (all)")
    parser.add_argument("--flink-python", default=sys.executable, help="a Python that has apache-flink (%(default)s)")
    parser.add_argument(
        "--nexmark-pathway-python", default=sys.executable, help="a Python that has pathway (%(default)s)"
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """The time and the processor time for all events, and the worst freshness of a transaction, if measured."""

    seconds: float
    processor_s: float
    worst_s: float = 0.0

    def cell(self, events: int) -> str:
        return f"{events / self.seconds:,.0f} ({events / self.processor_s:,.0f})"


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    names = options.nexmark.split(",") if options.nexmark else list(QUERIES)
    sizes = [int(size) for size in options.transactions.split(",")]
    events = Events(options.events)
    with tempfile.TemporaryDirectory() as directory:
        events.write(Path(directory))
        events.write_transactions(Path(directory), max(sizes))
        sides = {
            "Flink": _flink(options.flink_python, Path(directory), names),
            "Pathway": _pathway(options.nexmark_pathway_python, Path(directory), names),
        }
    sides = {side: costs for side, costs in sides.items() if costs}
    rows = []
    for name in names:
        ours = [[_tidewire(servers, events, name, size) for _ in range(2)][-1] for size in sizes]
        theirs = [costs.get(name) for costs in sides.values()]
        ratios = [
            f"{side.processor_s / our.processor_s:.2f}" if side is not None else "-" for side in theirs for our in ours
        ]
        cells = [cost.cell(options.events) if cost is not None else "-" for cost in (*ours, *theirs)]
        rows.append((name, *cells, *ratios, *(f"{cost.worst_s * 1e3:,.0f} ms" for cost in ours)))
    of = [f"{size:,}" for size in sizes]
    header = (
        *("query", *(f"Tidewire, {size}" for size in of), *sides),
        *(f"{size} / {side}" for side in sides for size in of),
        *(f"worst freshness, {size}" for size in of),
    )
    about = (
        f"Nexmark, {options.events:,} events in transactions of {' and '.join(of)}: events per second (per second of "
        "processor time), ratios of the latter, and the worst freshness of a transaction"
    )
    return [Table("nexmark", about, header, rows)]


def _flink(python: str, directory: Path, names: list[str]) -> dict[str, Cost]:
    """The cost of each query; empty if the Python has no Flink."""
    if not _has(python, "pyflink"):
        return {}
    return _costs([python, str(PROGRAMS / "flink_nexmark.py"), str(directory), *names])


def _pathway(python: str, directory: Path, names: list[str]) -> dict[str, Cost]:
    """The cost of each query that it can express; empty if the Python has no Pathway."""
    if not _has(python, "pathway"):
        return {}
    costs: dict[str, Cost] = {}
    for name in names:
        costs |= _costs([python, str(PROGRAMS / "pathway_nexmark.py"), str(directory / "transactions"), name])
    return costs


def _has(python: str, module: str) -> bool:
    has = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
    if not has:
        print(f"{python} has no {module}: see --help")
    return has


def _costs(command: list[str]) -> dict[str, Cost]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        command, env=own | {"PATHWAY_THREADS": "2"}, capture_output=True, text=True, check=True, timeout=OTHERS_S
    )
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith('["q')]
    return {name: Cost(*seconds) for name, *seconds in lines}


def _tidewire(servers: Servers, events: Events, name: str, size: int) -> Cost:
    """The cost from the first event to the progress that closes the last one."""
    server = servers.tidewire
    with psycopg.connect(server.dsn, autocommit=True) as writer:
        for table, columns in {**COLUMNS, SIDE_INPUT: SIDE_COLUMNS}.items():
            writer.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())
            writer.execute(f"CREATE TABLE {table} ({columns})".encode())
        _copy(writer, {SIDE_INPUT: events.side_input.encode()})
        transactions = events.transactions(size)
        subscriber = Subscriber(server.port, f"({QUERIES[name]})")
        begun, before = time.time(), tree_cpu_s(server.process.pid)
        acknowledged = []
        for lines in transactions:
            _copy(writer, lines)
            acknowledged.append(time.time())
        progress = subscriber.progress(acknowledged[-1], CAUGHT_UP_S)
        used = tree_cpu_s(server.process.pid) - before
    fresh = freshness(acknowledged, progress)
    assert len(fresh) == len(acknowledged), f"{name} did not catch up"
    return Cost(progress[-1][1] - begun, used, max(fresh))


def _copy(writer: psycopg.Connection, lines: dict[str, bytes]) -> None:
    """Writes the lines of each table in one transaction."""
    with writer.transaction(), writer.cursor() as cursor:
        for table, text in lines.items():
            with cursor.copy(f"COPY {table} FROM STDIN WITH (FORMAT csv)".encode()) as copy:
                copy.write(text)
