"""The servers that are compared: a new Tidewire process and a new PostgreSQL 16, both on the loopback interface."""

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

Time = Callable[[], float]  # executes the work once and returns its seconds


class Servers:
    """The servers, each started when it is first requested."""

    def __init__(self, stack: ExitStack) -> None:
        """`stack`: on which the servers' ends are registered."""
        self._stack = stack

    @cached_property
    def tidewire(self) -> ServerProcess:
        directory = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        tidewire = ServerProcess(directory, "--spark-memory", f"{memory_mb()}MB")
        self._stack.callback(tidewire.stop)
        tidewire.await_event("Spark warmed up")  # otherwise its warm-up would use the processors during the measurement
        return tidewire

    @cached_property
    def postgres(self) -> PostgresServer:
        postgres = PostgresServer("shared_buffers='512MB'\njit=off\nautovacuum=off\nfsync=on\n")
        self._stack.callback(postgres.stop)
        return postgres


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `target`: the target of the ratio, as text."""

    name: str
    ours: str
    theirs: str
    ratio: str
    target: str


@dataclass(frozen=True, slots=True)
class Table:
    """Figures with columns of their own. `about`: one sentence that describes them. `name`: see `into`."""

    name: str
    about: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def into(self, page: str) -> str:
        """The page with this table between the two comments that mark its place. Unchanged if it has no such
        comments."""
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
    """The medians of both, and of the ratios ours/theirs of all rounds. The order alternates from round to round."""
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
