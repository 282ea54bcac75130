"""The step of a dataflow that recomputes an aggregate over a small table, compared with an empty Spark job."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from catalog import updates
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from tests.bench.engines import memory_mb
from tests.bench.servers import Line, Servers
from tests.server.states import state_with_table

ROWS = 1_000
ROUNDS = 120


async def measure() -> list[Line]:
    state, table = state_with_table("t", k="int4", v="int4")
    plan = plan_query(
        parse_query("SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k"),
        PlanContext(state=state, database="materialize", search_path=("public",), user="materialize"),
        maintained=True,
    )
    sql = plan.spark_sql(Bindings())
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), memory_mb=memory_mb(), archive=default_archive_directory())
        await engine.start()
        try:
            await engine.warm_up()
            steps, floors = [], []
            last: pa.Table | None = None
            for number in range(ROUNDS):
                rows = pa.table({"c0": [(n + number) % 10 for n in range(ROWS)], "c1": list(range(ROWS))}).cast(
                    updates.rows_schema([pa.int32(), pa.int32()])
                )
                begun = time.perf_counter()
                result = await engine.run(sql, {table: rows})
                if last is not None:
                    updates.difference(result, last)
                last = result
                steps.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                await engine.run("SELECT id FROM range(0, 1, 1, 1)", {})
                floors.append(time.perf_counter() - begun)
        finally:
            await engine.close()
    ratio = statistics.median(a / b for a, b in zip(steps, floors, strict=True))
    return [
        Line(
            f"step: aggregate over {ROWS:,} rows / empty job",
            f"{statistics.median(steps) * 1e3:.1f} ms",
            f"{statistics.median(floors) * 1e3:.1f} ms",
            f"{ratio:.2f} x",
            "at most 3 x an empty Spark job",
        )
    ]


def run(servers: Servers) -> list[Line]:
    return asyncio.run(measure())
