"""A server under attack, and a client that measures the effect of the attack on others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.fix_server import ServerProcess
from tests.server.frontend.raw_client import RawClient, raw_client

PAUSE_MAX_S = 1.0
"""How long another client may wait for `SELECT 1`. The event loop's own pauses take a few milliseconds. The rest is
the machine's: the attack, Spark and the tests share its two cores."""


@contextmanager
def watched(server: ServerProcess) -> Iterator[None]:
    """Fails if another session waited longer than PAUSE_MAX_S while the block ran."""
    worst = 0.0
    ready, done = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def probe() -> None:
        nonlocal worst
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("SELECT 1").fetchone()
                ready.set()
                while not done.wait(0.01):
                    begun = time.monotonic()
                    connection.execute("SELECT 1").fetchone()
                    worst = max(worst, time.monotonic() - begun)
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=probe)
    thread.start()
    ready.wait()  # a block that begins before the other session is connected would not be measured
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failures, failures
    assert worst < PAUSE_MAX_S, f"another session waited {worst:.1f} s"


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


@contextmanager
def bounded_session(server: ServerProcess, growth_max: int) -> Iterator[RawClient]:
    """A session of `materialize`. Afterwards the server has at most so many bytes more, and no session was delayed."""
    before = resident_bytes(server.process.pid)
    with watched(server), raw_client(server.port) as client:
        client.start("materialize", "materialize")
        yield client
        assert resident_bytes(server.process.pid) - before < growth_max
