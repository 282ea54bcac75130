"""How long a subscriber waits for the next change after a kill -9 of its server, until it continues on another one.

A second server follows a table of the first one through a file. A client of the library names both, follows the second,
and a row is inserted every 20 ms on the first. Measured is the longest time between two batches around the kill.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import tidewire
from tests.bench.servers import Line, Servers
from tests.kafka.active_active import Server

KILLS = 10
INSERT_S = 0.02
AFTER = 25  # batches that precede the kill
OPTIONS = "FORMAT JSON ENVELOPE MATERIALIZE WITH"
COLUMNS = "(n bigint NOT NULL, v text)"


def run(_: Servers) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-") as name:
        directory = Path(name)
        path = directory / "changes.json"
        first, second = Server(directory / "first"), Server(directory / "second")
        ending = threading.Event()
        writer = threading.Thread(target=_write, args=(first, ending))
        try:
            first.execute(
                f"CREATE TABLE t {COLUMNS} WITH (RETAIN HISTORY FOR '1 hour')",
                f"CREATE SINK s FROM t INTO FILE '{path}' {OPTIONS} (PROGRESS INTERVAL '100ms')",
            )
            while not path.exists():
                sleep(0.01)
            options = "(POLL INTERVAL '10ms', TIMESTAMPS 'upstream')"
            source = f"CREATE SOURCE t {COLUMNS} FROM FILE '{path}' {options} {OPTIONS} (RETAIN HISTORY FOR '1 hour')"
            second.execute(source)
            writer.start()
            waits = [_wait(first, second) * 1_000 for _ in range(KILLS)]
        finally:
            ending.set()
            if writer.is_alive():
                writer.join()
            first.kill()
            second.kill()
    return [
        Line(
            f"kill -9 of a subscriber's server to the next change from another one, p50 of {KILLS}",
            f"{median(waits):.0f} ms (max {max(waits):.0f})",
            "",
            "",
            "at most 5 s",
        )
    ]


def _write(server: Server, ending: threading.Event) -> None:
    number = 0
    while not ending.wait(INSERT_S):
        server.execute(f"INSERT INTO t VALUES ({number}, 'x')")
        number += 1


def _wait(first: Server, second: Server) -> float:
    """Kills the second server under a subscriber, and starts it again. Fails if a change is missing or repeated."""
    ports = f"{second.process.port},{first.process.port}"
    dsn = f"host=127.0.0.1,127.0.0.1 port={ports} user=materialize dbname=materialize"
    found: list[int] = []
    killed, longest, before = False, 0.0, perf_counter()
    with closing(tidewire.subscribe(dsn, "t")) as batches:
        for number, batch in enumerate(batches):
            if isinstance(batch, tidewire.Progress):
                continue
            now = perf_counter()
            if killed:
                longest = max(longest, now - before)
            before = now
            found += [row[0] for row, diff in batch.changes for _ in range(diff)]
            if not killed and number >= AFTER:
                second.kill()
                killed = True
            elif killed and number >= 2 * AFTER:
                break
    assert sorted(found) == list(range(len(found)))
    second.start()
    return longest
