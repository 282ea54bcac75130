"""Throughput of Nexmark queries, compared with Apache Flink on the same events.

Tidewire receives the events by COPY, in transactions of `--transaction` events, while a client reads the SUBSCRIBE to
the query. Measured is the time from the first COPY to the progress that closes the last transaction. Flink reads the
same events from files, without transactions, with mini-batches, into a sink that discards rows. Its start is not
counted. `--flink-python` names a Python that has Flink: `python -m venv DIR && DIR/bin/pip install apache-flink`.

The queries are those of `others/nexmark_queries.py`. They use only syntax that both systems have.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

import psycopg

from tests.bench.others.nexmark_queries import COLUMNS, QUERIES
from tests.bench.servers import Servers, Table

PROGRAM = Path(__file__).parent / "others" / "flink_nexmark.py"
EVENTS_PER_MS = 10
START_MS = 1_700_000_000_000
CYCLE = ("person", *("auction",) * 3, *("bid",) * 46)  # the proportions of Nexmark
STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
CITIES = ("Phoenix", "Boise", "Kent", "Portland", "Bend", "Seattle")
CAUGHT_UP_S = 300.0


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--events", type=int, default=400_000, help="(%(default)s)")
    parser.add_argument("--transaction", type=int, default=10_000, help="events of a transaction (%(default)s)")
    parser.add_argument("--nexmark", default="", help="queries, comma-separated (all)")
    parser.add_argument("--flink-python", default=sys.executable, help="a Python that has apache-flink (%(default)s)")


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    names = options.nexmark.split(",") if options.nexmark else list(QUERIES)
    with tempfile.TemporaryDirectory() as directory:
        events = Events(Path(directory), options.events)
        flink = _flink(options.flink_python, events, names)
        rows = []
        for name in names:
            seconds = _tidewire(servers.tidewire.dsn, events, name, options.transaction)
            ours = options.events / seconds
            theirs = options.events / flink[name] if name in flink else None
            compared = ("-", "-") if theirs is None else (f"{theirs:,.0f}", f"{ours / theirs:.2f}")
            rows.append((name, f"{ours:,.0f}", *compared))
    about = f"Nexmark, {options.events:,} events in transactions of {options.transaction:,}: events per second"
    return [Table("nexmark", about, ("query", "Tidewire", "Flink", "ratio"), rows)]


class Events:
    """Events as lines of CSV, in their order, and in one file per table."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.lines: list[tuple[str, str]] = []
        draw = Random(7)
        persons = auctions = 0
        for number in range(count):
            table = CYCLE[number % len(CYCLE)]
            now = START_MS + number // EVENTS_PER_MS
            if table == "person":
                line = f"{persons},p{persons},{draw.choice(CITIES)},{draw.choice(STATES)},{now}"
                persons += 1
            elif table == "auction":
                seller = persons - 1 if draw.random() < 0.25 else _recent(draw, persons, 1_000)
                expires = now + draw.randrange(1_000, 20_000)
                line = f"{auctions},item{auctions},{draw.randrange(100, 10**6)},{now},{expires},{seller},"
                line += str(10 + draw.randrange(5))
                auctions += 1
            else:
                auction = auctions // 100 * 100 if draw.random() < 0.5 else _recent(draw, auctions, 100)
                bidder = persons // 100 * 100 if draw.random() < 0.75 else _recent(draw, persons, 1_000)
                price = int(10 ** (draw.random() * 6) * 100)
                line = f"{min(auction, auctions - 1)},{bidder},{price},ch{draw.randrange(4)},{now}"
            self.lines.append((table, line + "\n"))
        for table in COLUMNS:
            (directory / f"{table}.csv").write_text("".join(line for name, line in self.lines if name == table))


def _recent(draw: Random, count: int, window: int) -> int:
    return max(0, count - 1 - int(draw.random() * min(count, window)))


def _flink(python: str, events: Events, names: list[str]) -> dict[str, float]:
    """The seconds of each query; empty if the Python has no Flink."""
    if subprocess.run([python, "-c", "import pyflink"], capture_output=True, check=False).returncode:
        print(f"{python} has no apache-flink: see --help")
        return {}
    found = subprocess.run(
        [python, str(PROGRAM), str(events.directory), *names], capture_output=True, text=True, check=True, timeout=1_800
    )
    return dict(json.loads(line) for line in found.stdout.splitlines() if line.startswith("["))


def _tidewire(dsn: str, events: Events, name: str, size: int) -> float:
    """The seconds from the first event to the progress that closes the last one."""
    closed, moved = 0, threading.Condition()
    with psycopg.connect(dsn, autocommit=True) as writer, psycopg.connect(dsn, autocommit=True) as reader:
        for table, columns in COLUMNS.items():
            writer.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())
            writer.execute(f"CREATE TABLE {table} ({columns})".encode())

        def follow() -> None:
            nonlocal closed
            try:
                with reader.cursor().copy(f"COPY (SUBSCRIBE ({QUERIES[name]}) WITH (PROGRESS)) TO STDOUT") as copy:
                    for block in copy:
                        end = bytes(block).rfind(b"\tt\t")
                        if end >= 0:
                            begin = bytes(block).rfind(b"\n", 0, end) + 1
                            with moved:
                                closed = int(bytes(block)[begin:end])
                                moved.notify()
            except psycopg.errors.QueryCanceled:
                pass

        follower = threading.Thread(target=follow)
        follower.start()
        with moved:
            assert moved.wait_for(lambda: closed, CAUGHT_UP_S)
        begun = time.monotonic()
        for first in range(0, len(events.lines), size):
            with writer.transaction(), writer.cursor() as cursor:
                for table in COLUMNS:
                    lines = "".join(line for of, line in events.lines[first : first + size] if of == table)
                    with cursor.copy(f"COPY {table} FROM STDIN WITH (FORMAT csv)".encode()) as copy:
                        copy.write(lines)
        written_ms = time.time() * 1_000
        with moved:
            assert moved.wait_for(lambda: closed > written_ms, CAUGHT_UP_S), f"{name} did not catch up"
        seconds = time.monotonic() - begun
        reader.cancel()
        follower.join()
    return seconds
