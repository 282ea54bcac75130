"""How much a source that reads as fast as it can delays sessions and another source.

The busy source reads a CSV file of `--busy-rows` rows, and another one a Kafka topic with a tenth as many messages in
FORMAT JSON, if there is Apache Kafka (`make test-kafka` downloads it). Meanwhile one connection executes `SELECT 1`,
another one single-row INSERTs, and lines are appended to the file of a quiet source, whose subscriber waits for each.
The same is measured while the server is idle.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import psycopg

from tests.bench.servers import Servers, Table
from tests.kafka.broker.broker import JARS, KafkaBroker

IDLE_S = 10.0
PAUSE_S = 0.01  # between two probes
COMMITTED = """
    SELECT sum(updates_committed)::bigint FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id)
    WHERE name = 'busy'
"""
HEADER = ("what waits", "idle: p50", "p99", "at most", "busy: p50", "p99", "at most")


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--busy-rows", type=int, default=10_000_000, help="rows of the busy source (%(default)s)")


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-") as directory:
        return _measured(servers.tidewire.dsn, Path(directory), options.busy_rows)


def _measured(dsn: str, directory: Path, rows: int) -> list[Table]:
    """The tables of the file and of the topic."""
    large, small = directory / "large.csv", directory / "small.csv"
    with large.open("w") as file:
        for start in range(0, rows, 100_000):
            file.write("".join(f"{n},{n % 1_000},text {n:016d},{n / 8}\n" for n in range(start, start + 100_000)))
    small.touch()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE probed (id bigint)")
        connection.execute(
            f"CREATE SOURCE quiet (n bigint) FROM FILE '{small}' (POLL INTERVAL '10ms') FORMAT CSV".encode()
        )
        idle, _ = _waits(dsn, small, lambda: time.sleep(IDLE_S))

        def table(name: str, what: str, create: str, count: int) -> Table:
            """The waits while the source `create` reads `count` rows."""

            def read_all() -> None:
                connection.execute(create.encode())
                while connection.execute(COMMITTED).fetchone() != (count,):
                    time.sleep(0.1)

            busy, seconds = _waits(dsn, small, read_all)
            connection.execute("DROP SOURCE busy")
            lines = [(name, *_cells(idle[name]), *_cells(busy[name])) for name in idle]
            about = f"Waits, while the server is idle and while a source reads {count:,} {what} in {seconds:.0f} s"
            return Table(name, about, HEADER, lines)

        columns = "a bigint, k int, t text, x double precision"
        create = f"CREATE SOURCE busy ({columns}) FROM FILE '{large}' FORMAT CSV"
        tables = [table("busy source", "rows of a CSV file", create, rows)]
        if JARS.exists():
            with _topic(directory, rows // 10) as address:
                connection.execute(f"CREATE CONNECTION busy_kafka TO KAFKA (BROKER '{address}')".encode())
                create = "CREATE SOURCE busy FROM KAFKA CONNECTION busy_kafka (TOPIC 'busy') FORMAT JSON"
                tables.append(table("busy topic", "messages in JSON", create, rows // 10))
    return tables


@contextmanager
def _topic(directory: Path, count: int) -> Iterator[str]:
    """The address of a broker with messages in the topic `busy`."""
    broker = KafkaBroker(directory)
    try:
        broker.create_topic("busy", 4)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "queue.buffering.max.messages": count}
        )
        for n in range(count):
            value = {"id": n, "name": f"customer {n}", "address": {"city": "Berlin"}, "tags": ["a", "b"]}
            producer.produce("busy", json.dumps(value).encode(), b"%d" % n, n % 4)
        producer.flush()
        yield broker.address
    finally:
        broker.kill()


def _waits(dsn: str, small: Path, work: Callable[[], None]) -> tuple[dict[str, list[float]], float]:
    """The seconds that each probe has waited during the work, and the duration of the work."""
    done = threading.Event()
    found: dict[str, list[float]] = {"SELECT 1": [], "INSERT of a row": [], "a line of another source": []}
    failures: list[BaseException] = []

    def probe(name: str, act: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as own:
                while not done.wait(PAUSE_S):
                    begun = time.perf_counter()
                    act(own)
                    found[name].append(time.perf_counter() - begun)
        except BaseException as error:
            failures.append(error)

    def follow() -> None:
        name = "a line of another source"
        try:
            with psycopg.connect(dsn) as own, small.open("a") as file:
                own.execute("DECLARE c CURSOR FOR SUBSCRIBE quiet WITH (SNAPSHOT false)")
                own.execute("FETCH 0 c")
                while not done.wait(PAUSE_S):
                    begun = time.perf_counter()
                    file.write("1\n")
                    file.flush()
                    assert own.execute("FETCH 1 c WITH (timeout = '60s')").fetchall()
                    found[name].append(time.perf_counter() - begun)
        except BaseException as error:
            failures.append(error)

    probes = [
        threading.Thread(target=probe, args=("SELECT 1", lambda c: c.execute("SELECT 1").fetchone())),
        threading.Thread(target=probe, args=("INSERT of a row", lambda c: c.execute("INSERT INTO probed VALUES (1)"))),
        threading.Thread(target=follow),
    ]
    for thread in probes:
        thread.start()
    begun = time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - begun
        done.set()
        for thread in probes:
            thread.join()
    if failures:
        raise failures[0]
    return found, seconds


def _cells(waits: list[float]) -> tuple[str, str, str]:
    ordered = sorted(waits)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{p50 * 1e3:.1f} ms", f"{p99 * 1e3:.1f} ms", f"{ordered[-1] * 1e3:.0f} ms"
