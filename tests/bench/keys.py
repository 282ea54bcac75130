"""What an enforced PRIMARY KEY costs: single-row INSERTs, COPY, and the first write after a restart."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers, Table, timed
from tests.fix_server import ServerProcess

ROUNDS = 7
SECONDS = 2
COPIED, RESTARTED = 1_000_000, 10_000_000
COPY_ROUNDS = 4
CHUNK = 1_000_000
RANDOM = 9_007_199_254_740_991
TABLES = {"with": "keyed", "without": "free"}


def run(servers: Servers) -> list[Table]:
    server = servers.tidewire
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE keyed (id bigint PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE free (id bigint NOT NULL, v text)")
    lines = []
    for clients in (1, 16):
        for mode in ("prepared", "simple"):

            def insert(table: str, clients: int = clients, mode: str = mode) -> float:
                script = f"\\set x random(1, {RANDOM})\nINSERT INTO {table} VALUES (:x, 'hello');\n"
                return 1 / pgbench(server.dsn, script, clients=clients, mode=mode, seconds=SECONDS).rate

            name = f"INSERT of a row, {mode}, {clients} connection{'s' if clients > 1 else ''}"
            lines.append(_compared(name, insert, ROUNDS, lambda s: f"{1 / s:,.0f} rows/s", "at most 1.3 x the time"))
    copy = _compared(
        "COPY of 10^6 rows",
        lambda table: _copied(server, table),
        COPY_ROUNDS,
        lambda s: f"{s:.2f} s",
        "at most 1.5 x the time",
    )
    lines.append(copy)
    lines.append(_restarted(server))
    header = ("work", "with a key", "without", "ratio", "target")
    rows = [(line.name, line.ours, line.theirs, line.ratio, line.target) for line in lines]
    return [Table("keys", "What an enforced PRIMARY KEY on a bigint costs, measured alternately", header, rows)]


def _compared(
    name: str, measure: Callable[[str], float], rounds: int, shown: Callable[[float], str], target: str
) -> Line:
    """Seconds with and without a key, alternately."""
    pairs = []
    for number in range(rounds):
        order = list(TABLES) if number % 2 else list(reversed(TABLES))
        found = {side: measure(TABLES[side]) for side in order}
        pairs.append((found["with"], found["without"]))
    keyed, free = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    return Line(name, shown(keyed), shown(free), f"{ratio:.2f} x", target)


def _copied(server: ServerProcess, table: str) -> float:
    data = "".join(f"{key}\thello{key % 77}\n" for key in range(COPIED))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        key = "PRIMARY KEY" if table == "keyed" else "NOT NULL"
        connection.execute(f"DROP TABLE IF EXISTS copied_{table}".encode())
        connection.execute(f"CREATE TABLE copied_{table} (id bigint {key}, v text)".encode())

        def copy() -> None:
            with connection.cursor() as cursor, cursor.copy(f"COPY copied_{table} FROM STDIN".encode()) as sent:
                sent.write(data)

        return timed(copy)


def _restarted(server: ServerProcess) -> Line:
    """The time from the start of a server on a copy of the data to the acknowledgement of its first INSERT."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE large (id bigint PRIMARY KEY, v text)")
        for start in range(0, RESTARTED, CHUNK):
            with connection.cursor() as cursor, cursor.copy("COPY large FROM STDIN") as sent:
                sent.write("".join(f"{key * 7919}\thello{key % 77}\n" for key in range(start, start + CHUNK)))
    server.stop()
    again = ServerProcess(Path(server.directory))
    try:
        with psycopg.connect(again.dsn, autocommit=True) as connection:
            begun = time.perf_counter()
            connection.execute("INSERT INTO large VALUES (-1, 'first')")
            first = time.perf_counter() - begun
            second = timed(lambda: connection.execute("INSERT INTO large VALUES (-2, 'second')"))
    finally:
        again.stop()
    name = "first INSERT into 10^7 rows after a restart"
    return Line(name, f"{first:.2f} s, the next one {second * 1e3:.1f} ms", "", "", "at most 5 s")
