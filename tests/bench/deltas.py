"""Ticks of one changed row up to all rows of a table, compared with recomputation, in one run, over a real log.

`t` has `--base` rows, ten per key, of which a given number is replaced at one time. The tables that it is joined with
do not change. Each tick is the first large one of its dataflow, whose state has just been built, so the work before a
tick is abandoned is included. Both computations read the log as the server does, and have the previous rows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from catalog.log import Frontiers, Log
from catalog.objects import ObjectId, Table, Timestamp
from catalog.payloads import Payloads
from catalog.store import Store
from server.coordinator.snapshot_cache import SnapshotCache, collection_schema
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.operators import step_cost
from server.dataflow.runtime.computation import Computation, Recomputation
from server.dataflow.runtime.incremental import IncrementalComputation
from server.dataflow.stream.accumulated import Accumulated
from server.spark.engine import SparkEngine
from server.sql.plan import QueryPlan
from server.sql.render import spark_text
from server.sql.rewrite import rewritten
from tests.bench import incremental
from tests.bench.engines import with_engine
from tests.bench.growing import START, Growing, planned, state
from tests.bench.maintained import maintained
from tests.bench.processes import cpu_s
from tests.bench.servers import Servers
from tests.bench.servers import Table as Figures

QUERIES = {
    **incremental.QUERIES,
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) FROM t",
}
AFTER = 100  # changed rows of the tick that follows one of all rows


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--base", type=int, default=300_000, help="rows of the table (%(default)s)")
    parser.add_argument("--deltas", default="1,100,1000,10000,100000", help="changed rows, and all (%(default)s)")
    parser.add_argument("--followed", default="", help="queries whose names begin so, comma-separated (all)")
    parser.add_argument("--turns", type=int, default=4, help="ticks of each kind, the fastest counts (%(default)s)")
    parser.add_argument("--never", action="store_true", help="give up nothing: to see where the crossings are")


class Logged:
    """The part of `Inputs` that reads the log, with a snapshot cache of its own."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._snapshots = SnapshotCache(log)

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        return self._log.lines(id, lower, upper)

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return self._log.times(id, lower, upper)

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        return await self._snapshots.rows(_table(id), as_of)

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        return await asyncio.to_thread(self._log.changes, id, lower, upper, collection_schema(_table(id)))

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """No collection has an error."""

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """Needs no check: every deleted row existed."""


@dataclass
class Took:
    """Seconds of each round, and seconds of processor time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def compared_with(self, other: Took) -> str:
        return f"{min(self.wall) / min(other.wall):.2f} ({min(self.cpu) / max(min(other.cpu), 0.01):.2f})"


class Bench:
    """One query over a log of its own."""

    def __init__(self, engine: SparkEngine, plan: QueryPlan, base: int, directory: Path, stack: ExitStack) -> None:
        self._engine = engine
        self._plan = plan
        self._store = Store(directory)
        stack.callback(self._store.close)
        self._log = Log(self._store, Payloads(directory / "payloads"))
        self._growing = Growing(base, plan.inputs, "t")
        self._rows: Accumulated | None = None
        self._inputs = Logged(self._log)
        relation = rewritten(plan.relation)
        plan = replace(plan, relation=relation, template=spark_text(relation))
        self._recomputation = Recomputation(plan, engine, Logged(self._log))

    async def begin(self) -> None:
        for id in self._plan.inputs:
            self._store.transact(lambda tx, id=id: self._log.create(tx, id, Frontiers(START, None)))  # type: ignore[misc]
            self._write(id, await self._growing.rows(id, START))
        self._rows = Accumulated(await self._recomputation.hydrate(START))

    async def turn(self, changed: int, *, after: bool) -> tuple[Took, Took, bool]:
        """The tick, the recomputation, and whether the tick was abandoned. `after`: measures a small tick that
        follows it."""
        with ExitStack() as stack:
            storage = Storage()
            stack.callback(storage.close)
            ours = maintained(self._plan, self._engine, self._inputs, storage)
            stack.callback(ours.close)
            await ours.hydrate(self._growing.now)
            tick, fallback = await self._advanced(ours, changed)
            given_up = isinstance(ours, IncrementalComputation) and not ours.has_state
            if after:
                tick, fallback = await self._advanced(ours, AFTER)
            return tick, fallback, given_up

    async def _advanced(self, ours: Computation, changed: int) -> tuple[Took, Took]:
        before, now = self._growing.now, self._growing.change(2 * changed)
        for id in self._plan.inputs:
            if self._growing.change_times(id, now, now + 1):
                self._write(id, await self._growing.changes(id, before + 1, now + 1))
        took: dict[Computation, Took] = {ours: Took(), self._recomputation: Took()}
        for computation in (ours, self._recomputation) if now % 2 else (self._recomputation, ours):
            cpu, begun = self._cpu_s(), time.perf_counter()
            changes = await computation.advance([now], self._present)
            took[computation].wall.append(time.perf_counter() - begun)
            took[computation].cpu.append(self._cpu_s() - cpu)
        assert self._rows is not None
        for table in changes:
            self._rows.add(table)
        return took[ours], took[self._recomputation]

    async def _present(self) -> pa.Table:
        assert self._rows is not None
        return self._rows.rows

    def _write(self, id: ObjectId, table: pa.Table) -> None:
        payload = self._log.prepare(table)
        batch = self._store.transact(lambda tx: self._log.insert(tx, id, self._growing.now, payload))
        self._log.committed([(batch, payload)])

    def _cpu_s(self) -> float:
        assert self._engine.jvm_pid is not None
        return cpu_s(os.getpid()) + cpu_s(self._engine.jvm_pid)


def _table(id: ObjectId) -> Table:
    item = state().items[id]
    assert isinstance(item, Table)
    return item


async def figures(engine: SparkEngine, options: argparse.Namespace) -> Figures:
    chosen = tuple(options.followed.split(","))
    counts = [int(count) for count in options.deltas.split(",")] + [options.base]
    rows = []
    for name, sql in QUERIES.items():
        if not name.startswith(chosen):
            continue
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            bench = Bench(engine, planned(sql), options.base, Path(directory), stack)
            await bench.begin()
            cells = [name]
            for count, after in [*((count, False) for count in counts), (options.base, True)]:
                tick, fallback, given_up = Took(), Took(), False
                for _ in range(options.turns):
                    ours, recomputed, given_up = await bench.turn(count, after=after)
                    tick.wall += ours.wall
                    tick.cpu += ours.cpu
                    fallback.wall += recomputed.wall
                    fallback.cpu += recomputed.cpu
                cells.append(tick.compared_with(fallback) + (", recomputed" if given_up and not after else ""))
            cells.append(f"{min(fallback.wall) * 1e3:.0f} ms")
            rows.append(tuple(cells))
            print(*cells, sep=" | ", flush=True)
    header = ("query", *(f"{count:,}" for count in counts), f"{AFTER} after all", "recomputation")
    about = (
        f"Ticks as multiples of recomputing and subtracting (in parentheses: processor time), by changed rows of "
        f"{options.base:,}; `recomputed`: the tick was replaced by a recomputation; `recomputation`: its duration"
    )
    return Figures("deltas", about, header, rows)


def run(servers: Servers, options: argparse.Namespace) -> list[Figures]:
    if options.never:
        step_cost.FEW_ROWS = 1 << 60

    async def work(engine: SparkEngine) -> Figures:
        return await figures(engine, options)

    return [with_engine(work)]
