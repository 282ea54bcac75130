"""Ticks of followed queries: 100 changed rows against a small and a large base, beside an empty Spark job."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Table, Timestamp
from server.dataflow.arrangement import Storage
from server.dataflow.incremental import computation_of
from server.dataflow.shared import SharedArrangements
from server.spark.engine import SparkEngine
from server.spark.jvm import default_archive_directory
from server.sql.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from tests.bench.servers import Line, Servers
from tests.dataflow.histories import state

BASES = (10_000, 1_000_000)
CHANGED = 100
ROUNDS, WARM = 40, 15
EMPTY_JOB = "SELECT id FROM range(0, 1, 1, 1)"

QUERIES = {
    "filter, project": ("SELECT k + 1, upper(s) FROM t WHERE v > 3", 1),
    "join": ("SELECT t.s, u.f FROM t JOIN u ON t.k = u.k", 4),
    "sum, count by key": ("SELECT k, sum(v), count(*) FROM t GROUP BY k", 4),
    "left join": ("SELECT t.s, u.f FROM t LEFT JOIN u ON t.k = u.k", 4),
    "min, max by key": ("SELECT k, min(v), max(v) FROM t GROUP BY k", 4),
    "distinct": ("SELECT DISTINCT k, s FROM t", 4),
    "top 10": ("SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 10", 4),
    "join and aggregate": ("SELECT u.w, sum(t.v) FROM t JOIN u ON t.k = u.k GROUP BY u.w", 8),
}


@dataclass
class Growing:
    """Tables t and u of some size; at each time after the first 100 rows of each go and 100 others come."""

    size: int

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return [Timestamp(time) for time in range(max(lower, 1), upper)]

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """What goes was there."""

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        return updates.rows_of(self._part(id, 0, self.size))

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        gone = self._part(id, (lower - 2) * CHANGED, CHANGED)
        come = self._part(id, self.size + 7 + (lower - 2) * CHANGED, CHANGED)
        return pa.concat_tables([updates.negate(gone), come])

    def _part(self, id: ObjectId, first: int, count: int) -> pa.Table:
        """Rows by their numbers: ten share a key."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        keys = (numbers * 7919) % max(self.size // 10, 1)
        item = state().items[id]
        assert isinstance(item, Table)
        if item.name == "t":
            texts = np.char.add("s", (numbers % 1000).astype(str))
            columns = [pa.array(keys.astype(np.int32)), pa.array((numbers % 100_003).astype(np.int32)), pa.array(texts)]
        else:
            hundreds = pa.array(numbers % 100).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2))
            columns = [pa.array(keys.astype(np.int32)), hundreds, pa.array((numbers % 1009) / 4)]
        return updates.with_diff(pa.table(columns, names=[f"c{i}" for i in range(3)]), 1)


async def measured(engine: SparkEngine) -> list[Line]:
    lines = []
    context = PlanContext(state=state(), database="materialize", search_path=("public",), user="materialize")
    for name, (sql, target) in QUERIES.items():
        plan = plan_query(parse_query(sql), context, maintained=True)
        before: float | None = None
        for size in BASES:
            storage = Storage()
            computation = computation_of(plan, engine, Growing(size), SharedArrangements(storage))
            await computation.hydrate(Timestamp(1))
            ticks, floors = [], []
            for number in range(ROUNDS):
                begun = time.perf_counter()
                await computation.advance([Timestamp(number + 2)])
                ticks.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                await engine.run(EMPTY_JOB, {})
                floors.append(time.perf_counter() - begun)
            storage.close()
            tick, floor = statistics.median(ticks[WARM:]), statistics.median(floors[WARM:])
            grown = f", {tick / floor / before:.2f} x of the small base's" if before is not None else ""
            before = before or tick / floor
            lines.append(
                Line(
                    f"tick: {name}, {CHANGED} rows of {size:,} / empty job",
                    f"{tick * 1e3:.1f} ms",
                    f"{floor * 1e3:.1f} ms",
                    f"{tick / floor:.2f} x{grown}",
                    f"at most {target} x",
                )
            )
    return lines


async def measure() -> list[Line]:
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), archive=default_archive_directory())
        await engine.start()
        try:
            await engine.warm_up()
            return await measured(engine)
        finally:
            await engine.close()


def run(servers: Servers) -> list[Line]:
    return asyncio.run(measure())
