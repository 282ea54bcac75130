"""The servers that are compared: a Tidewire process and a PostgreSQL 16, both fresh, both on the loopback interface."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.bench.engines import memory_mb
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerProcess

Time = Callable[[], float]  # does the work once and returns its seconds


class Servers:
    """Started when they are first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        """`stack`: where their ends are put."""
        self._stack = stack

    @cached_property
    def tidewire(self) -> ServerProcess:
        directory = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        tidewire = ServerProcess(directory, "--spark-memory", f"{memory_mb()}MB")
        self._stack.callback(tidewire.stop)
        tidewire.await_event("engine warm")  # or its warm-up would take the processors from what is measured
        return tidewire

    @cached_property
    def postgres(self) -> PostgresServer:
        postgres = PostgresServer("shared_buffers='512MB'\njit=off\nautovacuum=off\n")
        self._stack.callback(postgres.stop)
        return postgres


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `target`: what the ratio is to be, as a person reads it."""

    name: str
    ours: str
    theirs: str
    ratio: str
    target: str


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that want columns of their own. `about`: what they are, in a sentence. `name`: see `into`."""

    name: str
    about: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def into(self, page: str) -> str:
        """A page with this table in the place of what stands between its two marks, if it has them."""
        begin, end = f"<!-- figures: {self.name} -->\n", "<!-- end of figures -->"
        before, found, behind = page.partition(begin)
        if not found:
            return page
        return f"{before}{begin}{self.about}:\n\n{self.markdown()}\n{end}{behind.partition(end)[2]}"


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
