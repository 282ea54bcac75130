"""Ticks of one row up to all rows of a table, followed and recomputed-and-subtracted, side by side in one run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from server.dataflow.arrangement import Storage
from server.dataflow.computation import Computation, Recomputation
from server.spark.engine import SparkEngine
from server.sql.render import spark_text
from server.sql.rewrite import rewritten
from tests.bench.engines import with_engine
from tests.bench.servers import Line, Servers
from tests.bench.upkeep import kept_up
from tests.dataflow.histories import ids, planned

SIZE = 300_000
CHANGED = (1, 100, 10_000, 100_000, SIZE)
ROUNDS = 3  # of each size; the fastest counts

QUERIES = {
    "filter, project": "SELECT k + 1, upper(s) FROM t WHERE v > 3",
    "join": "SELECT t.s, u.f FROM t JOIN u ON t.k = u.k",
    "left join": "SELECT t.s, u.f FROM t LEFT JOIN u ON t.k = u.k",
    "sum, count by key": "SELECT k, sum(v), count(*) FROM t GROUP BY k",
    "min, max by key": "SELECT k, min(v), max(v) FROM t GROUP BY k",
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) FROM t",
    "distinct": "SELECT DISTINCT k, s FROM t",
}


@dataclass
class Replaced:
    """t has `SIZE` rows, ten of each key, u one of each key. At each time some rows of t go, and as many come."""

    counts: dict[int, int] = field(default_factory=dict)

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def lines(self, id: ObjectId, as_of: Timestamp | None = None) -> int:
        return SIZE if id == ids()["t"] else SIZE // 10

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return [Timestamp(time) for time in range(max(lower, 1), upper) if id == ids()["t"] or time == 1]

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        if id == ids()["t"]:
            return updates.rows_of(self._part(self._gone(as_of), SIZE))
        numbers = np.arange(SIZE // 10)
        hundreds = pa.array(numbers % 100).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2))
        columns = [pa.array(numbers.astype(np.int32)), hundreds, pa.array(numbers / 4)]
        return pa.table(columns, names=["c0", "c1", "c2"])

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """Nothing goes that was not there."""

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        first, count = self._gone(lower - 1), self.counts[lower]
        return pa.concat_tables([updates.negate(self._part(first, count)), self._part(first + SIZE, count)])

    def _gone(self, time: int) -> int:
        return sum(self.counts.get(t, 0) for t in range(2, time + 1))

    def _part(self, first: int, count: int) -> pa.Table:
        numbers = np.arange(first, first + count, dtype=np.int64)
        texts = np.char.add("s", (numbers % 997).astype(str))
        keys = (numbers * 7919) % (SIZE // 10)
        columns = [pa.array(keys.astype(np.int32)), pa.array((numbers % 100_003).astype(np.int32)), pa.array(texts)]
        return updates.with_diff(pa.table(columns, names=["c0", "c1", "c2"]), 1)


async def measured(engine: SparkEngine) -> list[Line]:
    lines = []
    for name, sql in QUERIES.items():
        plan = planned(sql)
        storage, inputs = Storage(), Replaced()
        relation = rewritten(plan.relation)
        anew = Recomputation(replace(plan, relation=relation, template=spark_text(relation)), engine, inputs)
        ours = kept_up(plan, engine, inputs, storage)
        rows = await anew.hydrate(Timestamp(1))
        await ours.hydrate(Timestamp(1))
        at = 1
        for count in CHANGED:
            took: dict[Computation, list[float]] = {ours: [], anew: []}
            for _ in range(ROUNDS):
                at += 1
                inputs.counts[at] = count
                took[ours].append(await _advanced(ours, Timestamp(at), rows))
                took[anew].append(await _advanced(anew, Timestamp(at), rows))
                rows = await anew.hydrate(Timestamp(at))
            tick, fallback = min(took[ours]), min(took[anew])
            lines.append(
                Line(
                    f"tick: {name}, {count:,} of {SIZE:,} rows / recomputed and subtracted",
                    f"{tick * 1e3:.0f} ms",
                    f"{fallback * 1e3:.0f} ms",
                    f"{tick / fallback:.2f} x",
                    "at most 1 x",
                )
            )
        ours.close()
        storage.close()
    return lines


async def _advanced(computation: Computation, at: Timestamp, rows: pa.Table) -> float:
    async def present() -> pa.Table:
        return rows

    begun = time.perf_counter()
    await computation.advance([at], present)
    return time.perf_counter() - begun


def run(servers: Servers) -> list[Line]:
    return with_engine(measured)
