"""A server under attack, and a client that measures the effect of the attack on others."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.bench.processes import cpu_s
from tests.fix_server import ServerProcess
from tests.server.frontend.raw_client import RawClient, raw_client

PAUSE_MAX_S = 1.0
"""For how much processor time of the server another client may wait for `SELECT 1`. The event loop's own pauses take a
few milliseconds."""
WAIT_MAX_S = 5.0
"""How long it may wait. The attack, Spark and other tests share the machine's cores, so that the server may not run."""


@contextmanager
def meanwhile(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Calls each function in a thread. Sets its event at the end of the block, and fails if one of them has failed."""
    done = threading.Event()
    failures: list[BaseException] = []

    def caught(work: Callable[[threading.Event], None]) -> None:
        try:
            work(done)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caught, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


@contextmanager
def watched(server: ServerProcess, pause_max_s: float = PAUSE_MAX_S) -> Iterator[None]:
    """Fails if another session waited for `pause_max_s` of the server's processor time, or WAIT_MAX_S."""
    worst, longest = 0.0, 0.0
    ready = threading.Event()

    def probe(done: threading.Event) -> None:
        nonlocal worst, longest
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("SELECT 1").fetchone()
                ready.set()
                while not done.wait(0.01):
                    begun, used = time.monotonic(), cpu_s(server.process.pid)
                    connection.execute("SELECT 1").fetchone()
                    waited = time.monotonic() - begun
                    longest = max(longest, waited)
                    worst = max(worst, min(waited, cpu_s(server.process.pid) - used))
        finally:
            ready.set()

    with meanwhile(probe):
        ready.wait()  # a block that begins before the other session is connected would not be measured
        yield
    assert worst < pause_max_s, f"another session waited for {worst:.2f} s of processor time"
    assert longest < WAIT_MAX_S, f"another session waited {longest:.1f} s"


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


def traced(act: Callable[[], object]) -> int:
    """The most memory that Python's objects took meanwhile, in bytes."""
    tracemalloc.start()
    try:
        act()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most


@contextmanager
def bounded_session(server: ServerProcess, growth_max: int) -> Iterator[RawClient]:
    """A session of `materialize`. Afterwards the server has at most so many bytes more, and no session was delayed."""
    before = resident_bytes(server.process.pid)
    with watched(server), raw_client(server.port) as client:
        client.start("materialize", "materialize")
        yield client
        assert resident_bytes(server.process.pid) - before < growth_max
