"""Maintained queries: the duration of steps compared with an empty Spark job of the same engine, of hydration compared
with the plain SELECT, the size of the state compared with Arrow, and the processor time compared with recomputation.

Each figure comes from one run: steps over each base and empty jobs alternate, and the medians are divided. The targets
are for `TARGET_CHANGED` changed rows. `--bases 10000,10000000` needs 6 GB of memory in each of two processes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from catalog import updates
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.plan.lowering import delta_plan
from server.dataflow.plan.nodes import AccumulableAggregate, InnerJoin, Recompute, nodes_of
from server.dataflow.runtime.computation import Computation, Recomputation, compute
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan
from server.sql.rewrite import rewritten_or_not
from tests.bench.engines import memory_mb
from tests.bench.growing import START, Growing, planned
from tests.bench.maintained import maintained
from tests.bench.processes import cpu_s, own_bytes, peak
from tests.bench.servers import Servers, Table

TARGET_CHANGED = 100
WARM = 8
CPU_STEPS = 30
EMPTY_JOB = "SELECT id FROM range(0, 1, 1, 1)"
QUERIES = {
    "filter and expressions": "SELECT k + 1, upper(s) FROM t WHERE v > 3",
    "inner join": "SELECT t.s, u.f FROM t JOIN u ON t.k = u.k",
    "left join": "SELECT t.s, u.f FROM t LEFT JOIN u ON t.k = u.k",
    "sum and count by key": "SELECT k, sum(v), count(*) FROM t GROUP BY k",
    "min and max by key": "SELECT k, min(v), max(v) FROM t GROUP BY k",
    "DISTINCT": "SELECT DISTINCT k, s FROM t",
    "top 10": "SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 10",
    "two joins, then sum": (
        "SELECT w.h, count(*), sum(t.v) FROM t JOIN u ON t.k = u.k JOIN w ON u.g = w.g GROUP BY w.h"
    ),
}


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--bases", default="10000,1000000", help="rows of the tables, ascending (%(default)s)")
    parser.add_argument("--changed", default="1,100,10000", help="changed rows of a step (%(default)s)")
    parser.add_argument("--queries", default="", help="those whose names begin so, comma-separated (all)")
    parser.add_argument("--rounds", type=int, default=24, help="steps of each kind (%(default)s)")
    parser.add_argument("--cold", action="store_true", help="do not warm the engine first")


@dataclass
class Followed:
    """One query over tables of one size."""

    growing: Growing
    computation: Computation
    storage: Storage
    select_s: float
    hydrate_s: float
    grown_bytes: int
    """The growth of this process's memory by the state."""
    steps: dict[int, list[float]] = field(default_factory=dict)
    """Seconds, by the number of changed rows."""
    step_cpu_s: float = 0.0

    async def step(self, changed: int) -> float:
        time_ = self.growing.change(changed)
        begun = time.perf_counter()
        await self.computation.advance([time_])
        return time.perf_counter() - begun

    def close(self) -> None:
        self.computation.close()
        self.storage.close()


@dataclass
class Measured:
    """One query: its measurements by the size of the base, and empty jobs by the number of changed rows."""

    name: str
    operators: int
    bases: dict[int, Followed]
    floors: dict[int, list[float]]
    state: dict[int, tuple[int, int, int]]
    """By size: entries, bytes, and bytes as one Arrow table, of all arrangements."""
    recomputation_cpu_s: float | None = None
    """Processor time of recomputing one timestamp, over the largest base."""


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


class Bench:
    def __init__(self, engine: SparkEngine, options: argparse.Namespace) -> None:
        self._engine = engine
        self._bases = [int(size) for size in options.bases.split(",")]
        self._changed = [int(count) for count in options.changed.split(",")]
        self._rounds = options.rounds

    async def measured(self, name: str, plan: QueryPlan) -> Measured:
        bases = {size: await self._followed(plan, size) for size in self._bases}
        found = Measured(name, stateful(plan), bases, {}, {})
        try:
            for changed in self._changed:
                await self._take_turns(found, changed)
            for size, followed in bases.items():
                found.state[size] = await _state_of(followed)
            largest = bases[self._bases[-1]]
            largest.step_cpu_s = await self._cpu_of(largest, CPU_STEPS)
        finally:
            for followed in bases.values():
                followed.close()
        found.recomputation_cpu_s = await self._cpu_of_recomputation(plan, self._bases[-1])
        return found

    async def _followed(self, plan: QueryPlan, size: int) -> Followed:
        growing = Growing(size, plan.inputs)
        for id in plan.inputs:
            await growing.rows(id, START)  # excluded from the measurement
        select_s = await seconds(lambda: compute(plan, Bindings(), self._engine, growing.rows, START))
        storage = Storage()
        computation = maintained(plan, self._engine, growing, storage)
        before = own_bytes()
        hydrate_s = await seconds(lambda: computation.hydrate(START))
        return Followed(growing, computation, storage, select_s, hydrate_s, own_bytes() - before)

    async def _take_turns(self, found: Measured, changed: int) -> None:
        floors: list[float] = []
        steps: dict[int, list[float]] = {size: [] for size in found.bases if changed <= size}
        for _ in range(WARM + self._rounds):
            for size, times in steps.items():
                times.append(await found.bases[size].step(changed))
            floors.append(await seconds(lambda: self._engine.run(EMPTY_JOB, {})))
        found.floors[changed] = floors[WARM:]
        for size, times in steps.items():
            found.bases[size].steps[changed] = times[WARM:]

    async def _cpu_of(self, followed: Followed, steps: int) -> float:
        """Seconds of processor time per step, of the server and Spark together."""
        before = self._cpu_s()
        for _ in range(steps):
            await followed.step(TARGET_CHANGED)
        return (self._cpu_s() - before) / steps

    async def _cpu_of_recomputation(self, plan: QueryPlan, size: int) -> float:
        """Seconds of processor time of a timestamp that is recomputed, with the previous rows subtracted."""
        growing = Growing(size, plan.inputs)
        computation = Recomputation(plan, self._engine, growing)
        await computation.hydrate(START)
        before = self._cpu_s()
        await computation.advance([growing.change(TARGET_CHANGED)])
        return self._cpu_s() - before

    def _cpu_s(self) -> float:
        assert self._engine.jvm_pid is not None
        return cpu_s(os.getpid()) + cpu_s(self._engine.jvm_pid)


def stateful(plan: QueryPlan) -> int:
    """The number of a query's operators that keep state."""
    root = delta_plan(rewritten_or_not(plan.relation), plan.inputs)
    return sum(isinstance(node, InnerJoin | Recompute | AccumulableAggregate) for node in nodes_of(root))


async def _state_of(followed: Followed) -> tuple[int, int, int]:
    entries = size = plain = 0
    for arrangement in {id(a): a for _, a in followed.computation.arrangements}.values():
        await arrangement.settle()
        rows = updates.expand(await arrangement.all_rows(followed.growing.now))
        entries += arrangement.rows
        size += arrangement.bytes
        plain += rows.combine_chunks().nbytes
    return entries, size, plain


# -- the tables ---------------------------------------------------------------------------------------------------


def tables(found: Sequence[Measured], engine: SparkEngine) -> list[Table]:
    assert engine.jvm_pid is not None
    floors = [time for query in found for times in query.floors.values() for time in times]
    memory = f"at most {peak(os.getpid()) / 1e9:.1f} GB in the server, {peak(engine.jvm_pid) / 1e9:.1f} GB in Spark"
    return [
        _steps(found, statistics.median(floors)),
        _hydration(found, memory),
        _memory(found),
        _processor(found),
    ]


def _steps(found: Sequence[Measured], floor: float) -> Table:
    sizes, counts = list(found[0].bases), list(found[0].floors)
    header = ["query", *(f"{changed:,} of {size:,}" for changed in counts for size in sizes), "grows", "target"]
    rows = []
    for query in found:
        cells = []
        for changed in counts:
            empty = statistics.median(query.floors[changed])
            for size in sizes:
                steps = query.bases[size].steps.get(changed)
                cells.append("" if steps is None else f"{statistics.median(steps) / empty:.1f}")
        target = 4 * query.operators or 1
        rows.append([query.name, *cells, _growth(query), f"{target}, grows 1.5"])
    about = (
        f"A step as multiples of an empty Spark job, which took {floor * 1e3:.0f} ms; `grows`: {TARGET_CHANGED} rows "
        "of the largest base, divided by as many of the smallest"
    )
    return Table("steps", about, tuple(header), [tuple(row) for row in rows])


def _growth(query: Measured) -> str:
    steps = [base.steps[TARGET_CHANGED] for base in query.bases.values() if TARGET_CHANGED in base.steps]
    if len(steps) < 2:
        return ""
    return f"{statistics.median(steps[-1]) / statistics.median(steps[0]):.2f}"


def _hydration(found: Sequence[Measured], memory: str) -> Table:
    rows = [
        (query.name, f"{size:,}", f"{base.hydrate_s:.1f} s", f"{base.select_s:.1f} s",
         f"{base.hydrate_s / base.select_s:.1f}")
        for query in found for size, base in query.bases.items()
    ]  # fmt: skip
    about = f"From no state to the first rows, compared with the SELECT that computes them ({memory})"
    return Table("hydration", about, ("query", "rows", "hydration", "SELECT", "ratio"), rows)


def _memory(found: Sequence[Measured]) -> Table:
    rows = []
    for query in found:
        for size, (entries, kept, plain) in query.state.items():
            if plain:
                grown = query.bases[size].grown_bytes
                rows.append(
                    (query.name, f"{size:,}", f"{entries:,}", f"{kept / 1e6:,.1f} MB", f"{plain / 1e6:,.1f} MB",
                     f"{kept / plain:.2f}", f"{grown / plain:.2f}" if plain > 32 << 20 else "", "2")
                )  # fmt: skip
    header = ("query", "rows", "entries", "state", "as Arrow", "ratio", "process grew", "target")
    return Table("state", "What the arrangements keep, after all the steps", header, rows)


def _processor(found: Sequence[Measured]) -> Table:
    rows = []
    for query in found:
        size, base = list(query.bases.items())[-1]
        recomputation = query.recomputation_cpu_s
        if recomputation is not None:
            step = max(base.step_cpu_s, 1e-4)
            rows.append(
                (
                    query.name,
                    f"{size:,}",
                    f"{step * 1e3:.0f} ms",
                    f"{recomputation * 1e3:,.0f} ms",
                    f"{recomputation / step:.0f}",
                    "50",
                )
            )
    header = ("query", "rows", "a step", "recomputation", "ratio", "target at 10,000,000")
    return Table(
        "processor", f"Processor time of {TARGET_CHANGED} changed rows, server and Spark together", header, rows
    )


async def measure(options: argparse.Namespace) -> list[Table]:
    chosen = options.queries.split(",")
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), memory_mb=memory_mb(), archive=default_archive_directory())
        await engine.start()
        try:
            if not options.cold:
                await engine.warm_up()
            bench = Bench(engine, options)
            found = []
            for name, sql in QUERIES.items():
                if not any(name.startswith(beginning) for beginning in chosen):
                    continue
                begun = time.perf_counter()
                try:
                    found.append(await bench.measured(name, planned(sql)))
                except PgError as error:  # such as lack of memory: the other queries are measured
                    print(f"{name}: {error}", flush=True)
                print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
            return tables(found, engine)
        finally:
            await engine.close()


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    return asyncio.run(measure(options))
