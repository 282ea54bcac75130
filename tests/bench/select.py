"""A simple SELECT over a small table, and a read by key, compared with an empty Spark job of the same engine."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from server.dataflow.runtime.computation import compute
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from tests.bench.servers import Line, Servers
from tests.server.states import state_with_table

ROWS = 1_000
ROUNDS = 120
QUERIES = {
    "filter and project": ("SELECT k + 1 AS x, v FROM t WHERE v > 500", "at most 1.5 x an empty Spark job"),
    "read by key": ("SELECT v FROM t WHERE k = 5", "no Spark job"),
    "all of a table": ("SELECT * FROM t", "no Spark job"),
}


async def measure() -> list[Line]:
    state, _ = state_with_table("t", k="int4", v="int4")
    context = PlanContext(state=state, database="materialize", search_path=("public",), user="materialize")
    rows = pa.table({"c0": pa.array(range(ROWS), pa.int32()), "c1": pa.array(range(ROWS), pa.int32())})

    async def read(id: ObjectId, as_of: Timestamp) -> pa.Table:
        return rows

    lines = []
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), archive=default_archive_directory(), sessions=1)
        await engine.start()
        try:
            await engine.warm_up()
            for name, (sql, target) in QUERIES.items():
                plan = plan_query(parse_query(sql), context)
                ours, floors = [], []
                for _ in range(ROUNDS):
                    begun = time.perf_counter()
                    await compute(plan, Bindings(), engine, read, Timestamp(1))
                    ours.append(time.perf_counter() - begun)
                    begun = time.perf_counter()
                    await engine.run("SELECT id FROM range(0, 1, 1, 1)", {})
                    floors.append(time.perf_counter() - begun)
                lines.append(
                    Line(
                        f"SELECT over {ROWS:,} rows, {name} / empty job",
                        f"{statistics.median(ours) * 1e3:.2f} ms",
                        f"{statistics.median(floors) * 1e3:.1f} ms",
                        f"{statistics.median(a / b for a, b in zip(ours, floors, strict=True)):.2f} x",
                        target,
                    )
                )
        finally:
            await engine.close()
    return lines


def run(servers: Servers) -> list[Line]:
    return asyncio.run(measure())
