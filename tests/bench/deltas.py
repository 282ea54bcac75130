"""Steps with changes of up to all rows of a table, compared with the query from scratch, in one run, over a real log.

`t` has `--base` rows, ten per key, of which a given number is replaced at one time. The tables that it is joined with
do not change. Each step is the first large one of its dataflow, whose state has just been built, so the work before a
step is abandoned is included. A step with few changes follows at once, while the state is restored if the step before
has dropped it. All computations read the log as the server does. Steps have the previous rows.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from catalog.log import Frontiers, Log
from catalog.objects.tables import Table
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
from tests.bench.servers import Servers
from tests.bench.servers import Table as Figures

QUERIES = {
    **incremental.QUERIES,
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) FROM t",
}
AFTER = 100  # changed rows of the step that follows


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--base", type=int, default=300_000, help="rows of the table (%(default)s)")
    parser.add_argument("--deltas", default="1%,10%,50%,100%", help="changed rows, or their share (%(default)s)")
    parser.add_argument("--followed", default="", help="queries whose names begin so, comma-separated (all)")
    parser.add_argument("--turns", type=int, default=4, help="steps of each kind; the fastest counts (%(default)s)")
    parser.add_argument("--never", action="store_true", help="recompute nothing: to see where the crossings are")


class Logged:
    """The part of `Inputs` that reads the log, with a snapshot cache of its own."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._snapshots = SnapshotCache(log)

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        return self._log.row_count(id, lower, upper)

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
    """Seconds of each turn: of the step, of computing and subtracting all rows, and of the query from scratch."""

    step: list[float] = field(default_factory=list)
    recomputation: list[float] = field(default_factory=list)
    query: list[float] = field(default_factory=list)
    recomputed: bool = False  # the step computed all rows

    @property
    def cell(self) -> str:
        ratio, other = min(self.step) / min(self.query), min(self.step) / min(self.recomputation)
        return f"{ratio:.2f} ({other:.2f})" + (", recomputed" if self.recomputed else "")


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
        self._is_subtracted = False  # the present rows were read
        self._inputs = Logged(self._log)
        relation = rewritten(plan.relation)
        plan = replace(plan, relation=relation, template=spark_text(relation))
        self._recomputation = Recomputation(plan, engine, Logged(self._log))
        self._query = Recomputation(plan, engine, Logged(self._log))

    async def begin(self) -> None:
        for id in self._plan.inputs:
            self._store.transact(lambda tx, id=id: self._log.create(tx, id, Frontiers(START, None)))  # type: ignore[misc]
            self._write(id, await self._growing.rows(id, START))
        self._rows = Accumulated(await self._recomputation.hydrate(START))
        await self._query.hydrate(START)

    async def turn(self, changed: int, took: Took, after: Took) -> None:
        """A step with `changed` replaced rows, and a small one that follows at once."""
        with ExitStack() as stack:
            storage = Storage()
            stack.callback(storage.close)
            ours = maintained(self._plan, self._engine, self._inputs, storage)
            stack.callback(ours.close)
            await ours.hydrate(self._growing.now)
            await self._change(changed)
            await self._compare(took)
            await self._step(ours, took)
            ours.restore_state(lambda: nullcontext(_Holder(self._growing.now)), _failed)
            await self._change(AFTER)
            await self._step(ours, after)
            ours.close()
            await ours.closed()
            await self._compare(after)

    async def _change(self, changed: int) -> None:
        before, now = self._growing.now, self._growing.change(2 * changed)
        for id in self._plan.inputs:
            if self._growing.change_times(id, now, now + 1):
                self._write(id, await self._growing.changes(id, before + 1, now + 1))

    async def _step(self, ours: Computation, took: Took) -> None:
        assert self._rows is not None
        self._is_subtracted = False
        begun = time.perf_counter()
        changes = await ours.advance([self._growing.now], self._present)
        took.step.append(time.perf_counter() - begun)
        took.recomputed = self._is_subtracted or (isinstance(ours, IncrementalComputation) and not ours.has_state)
        for table in changes:
            self._rows.add(table)
        await self._rows.fold()

    async def _compare(self, took: Took) -> None:
        """The same query from scratch, while nothing else runs."""
        begun = time.perf_counter()
        await self._query.hydrate(self._growing.now)
        took.query.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await self._recomputation.advance([self._growing.now])
        took.recomputation.append(time.perf_counter() - begun)

    async def _present(self) -> pa.Table:
        assert self._rows is not None
        self._is_subtracted = True
        return await self._rows.current()

    def _write(self, id: ObjectId, table: pa.Table) -> None:
        payload = self._log.prepare(table)
        batch = self._store.transact(lambda tx: self._log.insert(tx, id, self._growing.now, payload))
        self._log.committed([(batch, payload)])


@dataclass
class _Holder:
    """Keeps nothing: the benchmark does not compact its log."""

    time: Timestamp

    def advance(self, time: int) -> None:
        self.time = Timestamp(time)


def _failed(error: Exception) -> None:
    raise error


def _table(id: ObjectId) -> Table:
    item = state().items[id]
    assert isinstance(item, Table)
    return item


async def figures(engine: SparkEngine, options: argparse.Namespace) -> Figures:
    chosen = tuple(options.followed.split(","))
    counts = [_count(text, options.base) for text in options.deltas.split(",")]
    rows = []
    for name, sql in QUERIES.items():
        if not name.startswith(chosen):
            continue
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            bench = Bench(engine, planned(sql), options.base, Path(directory), stack)
            await bench.begin()
            cells, scratch = [name], []
            for count in counts:
                took, after = Took(), Took()
                for _ in range(options.turns):
                    await bench.turn(count, took, after)
                cells += [took.cell, after.cell]
                scratch += took.query
            cells.append(f"{min(scratch) * 1e3:.0f} ms")
            rows.append(tuple(cells))
            print(*cells, sep=" | ", flush=True)
    header = ("query", *(text for count in counts for text in (f"{count:,}", f"then {AFTER}")), "from scratch")
    about = (
        f"Steps as multiples of the query from scratch (in parentheses: of computing and subtracting all rows), by "
        f"replaced rows of {options.base:,}; `recomputed`: the step computed all rows; `then {AFTER}`: a step of "
        f"{AFTER} rows that follows at once; `from scratch`: duration of the query"
    )
    return Figures("deltas", about, header, rows)


def _count(text: str, base: int) -> int:
    return base * int(text[:-1]) // 100 if text.endswith("%") else int(text)


def run(servers: Servers, options: argparse.Namespace) -> list[Figures]:
    if options.never:
        step_cost.FEW_ROWS = 1 << 60

    async def work(engine: SparkEngine) -> Figures:
        return await figures(engine, options)

    return [with_engine(work)]
