"""ALTER HOLD ... ADVANCE: 100 sessions that advance 1,000 holds as fast as possible, and one session alone."""

from __future__ import annotations

import re
import sqlite3
import statistics
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers
from tests.fix_server import ServerProcess

HOLDS = 1_000
SESSIONS = 100
SECONDS = 5
LONE = 300
SCRIPT = f"\\set n random(1, {HOLDS})\nALTER HOLD h:n ADVANCE;\n"


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run of pgbench."""

    per_second: float
    per_transaction: float


def run(servers: Servers) -> list[Line]:
    server = servers.tidewire
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE held (n int)")
        for number in range(1, HOLDS + 1):
            connection.execute(f"CREATE HOLD h{number} ON held")
        lone_ms = statistics.median(_timed_ms(connection) for _ in range(LONE))
    commit_ms = _commit_ms(server.directory)
    one, many = _advance(server, 1), _advance(server, SESSIONS)
    return [
        Line(
            f"ADVANCEs, {SESSIONS} sessions, {HOLDS:,} holds, compared with one session",
            f"{many.per_second:,.0f}/s",
            f"{one.per_second:,.0f}/s",
            f"{many.per_second / one.per_second:.2f} x",
            "at least 1 x one by one",
        ),
        Line(
            f"ADVANCEs a catalog transaction, {SESSIONS} sessions",
            f"{many.per_transaction:.1f}",
            f"{one.per_transaction:.1f} one by one",
            "",
            "at least 20",
        ),
        Line(
            "a lone ADVANCE, p50, compared with an SQLite commit",
            f"{lone_ms:.1f} ms",
            f"{commit_ms:.1f} ms",
            f"{lone_ms - commit_ms:+.1f} ms",
            "a few ms above",
        ),
    ]


def _timed_ms(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    begun = time.perf_counter()
    connection.execute("ALTER HOLD h1 ADVANCE")
    return (time.perf_counter() - begun) * 1e3


def _commit_ms(directory: Path) -> float:
    """A durable transaction of one row on the same disk, as the catalog executes them."""
    with sqlite3.connect(directory / "probe.sqlite", isolation_level=None) as probe:
        probe.execute("PRAGMA journal_mode = WAL")
        probe.execute("PRAGMA synchronous = FULL")
        probe.execute("CREATE TABLE holds (id INTEGER PRIMARY KEY, at INTEGER)")
        taken = []
        for number in range(LONE):
            begun = time.perf_counter()
            probe.execute("INSERT OR REPLACE INTO holds VALUES (1, ?)", (number,))
            taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken)


def _advance(server: ServerProcess, sessions: int) -> Run:
    before = _transactions(server)
    done = pgbench(server.dsn, SCRIPT, clients=sessions, seconds=SECONDS)
    return Run(done.rate, done.count / (_transactions(server) - before))


def _transactions(server: ServerProcess) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        found = re.search(rb"(?m)^tidewire_catalog_transactions_total (\S+)$", answer.read())
    assert found is not None
    return float(found[1])
