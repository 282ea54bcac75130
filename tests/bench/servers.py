"""The servers that are compared: a Tidewire process and a PostgreSQL 16, both fresh, both on the loopback interface."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerProcess

Time = Callable[[], float]  # does the work once and returns its seconds


@dataclass(frozen=True, slots=True)
class Servers:
    tidewire: ServerProcess
    postgres: PostgresServer


@contextmanager
def servers() -> Iterator[Servers]:
    directory = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    postgres = PostgresServer("shared_buffers='512MB'\njit=off\nautovacuum=off\n")
    tidewire = ServerProcess(directory)
    tidewire.await_event("engine warm")  # or its warm-up would take the processors from what is measured
    try:
        yield Servers(tidewire, postgres)
    finally:
        tidewire.stop()
        postgres.stop()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `target`: what the ratio is to be, as a person reads it."""

    name: str
    ours: str
    theirs: str
    ratio: str
    target: str


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def alternate(ours: Time, theirs: Time, rounds: int) -> tuple[float, float, float]:
    """Medians of both and of the rounds' ratios ours/theirs; the order flips from round to round."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            theirs_s = theirs()
            pairs.append((ours(), theirs_s))
        else:
            pairs.append((ours(), theirs()))
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
