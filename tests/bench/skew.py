"""Steps that change a key with half of all rows, compared with steps where each key has ten rows, and an empty job."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.spark.engine import SparkEngine
from tests.bench.engines import with_engine
from tests.bench.incremental import EMPTY_JOB
from tests.bench.incremental import TARGET_CHANGED as CHANGED
from tests.bench.maintained import maintained
from tests.bench.servers import Line, Servers
from tests.server.dataflow.histories import ids, planned

SIZE = 1_000_000
ROUNDS, WARM = 24, 8

QUERIES = {
    "left join": "SELECT t.s, u.f FROM t LEFT JOIN u ON t.k = u.k",
    "left join with it": "SELECT u.k, t.s FROM u LEFT JOIN t ON t.k = u.k",
    "full join": "SELECT u.k, t.s FROM u FULL JOIN t ON t.k = u.k",
    "EXISTS": "SELECT t.v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "EXISTS in it": "SELECT u.f FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k)",
    "NOT IN": "SELECT t.v FROM t WHERE t.k NOT IN (SELECT u.k FROM u WHERE u.k > 1000)",
    "count, min, max by key": "SELECT k, count(*), min(v), max(v) FROM t GROUP BY k",
    "count of different by key": "SELECT k, count(DISTINCT s), sum(v) FROM t GROUP BY k",
    "DISTINCT": "SELECT DISTINCT k FROM t",
    "DISTINCT ON": "SELECT DISTINCT ON (k) k, v, s FROM t ORDER BY k, v",
    "top 3 by key": "SELECT * FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) n FROM t) a WHERE n < 4",
}


@dataclass
class Skewed:
    """`t` has `SIZE` rows, of which 100 are replaced at each time. `u` has one row per key."""

    skewed: bool

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        return (SIZE if id == ids()["t"] else SIZE // 10) if lower == 0 else 0

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return [Timestamp(time) for time in range(max(lower, 1), upper) if id == ids()["t"] or time == 1]

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        if id == ids()["t"]:
            return updates.rows_of(self._part(0, SIZE))
        numbers = np.arange(SIZE // 10)
        hundreds = pa.array(numbers % 100).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2))
        columns = [pa.array(numbers.astype(np.int32)), hundreds, pa.array(numbers / 4)]
        return pa.table(columns, names=["c0", "c1", "c2"])

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """No collection has an error."""

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """Needs no check: every deleted row existed."""

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        gone = self._part((lower - 2) * CHANGED, CHANGED)
        come = self._part(SIZE + 7 + (lower - 2) * CHANGED, CHANGED)
        return pa.concat_tables([updates.negate(gone), come])

    def _part(self, first: int, count: int) -> pa.Table:
        numbers = np.arange(first, first + count, dtype=np.int64)
        keys = (numbers * 7919) % (SIZE // 10)
        if self.skewed:
            keys[numbers % 2 == 0] = 0
        texts = np.char.add("s", (numbers % 1000).astype(str))
        columns = [pa.array(keys.astype(np.int32)), pa.array((numbers % 100_003).astype(np.int32)), pa.array(texts)]
        return updates.with_diff(pa.table(columns, names=["c0", "c1", "c2"]), 1)


async def step_duration(engine: SparkEngine, sql: str, skewed: bool) -> float:
    """The duration of a step, as a multiple of an empty job."""
    storage = Storage()
    try:
        computation = maintained(planned(sql), engine, Skewed(skewed), storage)
        await computation.hydrate(Timestamp(1))
        steps, floors = [], []
        for number in range(ROUNDS):
            begun = time.perf_counter()
            await computation.advance([Timestamp(number + 2)])
            steps.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await engine.run(EMPTY_JOB, {})
            floors.append(time.perf_counter() - begun)
        return statistics.median(steps[WARM:]) / statistics.median(floors[WARM:])
    finally:
        storage.close()


async def measured(engine: SparkEngine) -> list[Line]:
    lines = []
    for name, sql in QUERIES.items():
        usual, skewed = [await step_duration(engine, sql, half) for half in (False, True)]
        lines.append(
            Line(
                f"step: {name}, {CHANGED} rows of {SIZE:,}, half of which have one key / each has ten",
                f"{skewed:.1f} x empty job",
                f"{usual:.1f} x empty job",
                f"{skewed / usual:.2f} x",
                "at most 2 x",
            )
        )
    return lines


def run(servers: Servers) -> list[Line]:
    return with_engine(measured)
