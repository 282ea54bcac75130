"""TPC-H's 22 queries, each maintained through the same random refreshes: steps compared with an empty Spark job.

The refreshes are first committed to a server, which holds their times. Then each query in turn is advanced from the
time before the refreshes to the time after them, one commit per step, in alternation with empty jobs. A refresh that
changed no table that the query reads is not counted. TIDEWIRE_SEED selects other refreshes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

import psycopg

from catalog.ids import Timestamp
from catalog.objects.tables import Table as CatalogTable
from server.coordinator.coordinator import Coordinator
from server.dataflow.plan.lowering import NoRule
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from tests.bench.engines import memory_mb
from tests.bench.incremental import EMPTY_JOB, stateful
from tests.bench.servers import Servers, Table
from tests.fix_server import ServerThread
from tests.ivm.test_tpch import load
from tests.ivm.tpch import QUERIES, TABLES, Refreshes, generate

SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
WARM = 3


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor (%(default)s)")
    parser.add_argument("--refreshes", type=int, default=24, help="transactions (%(default)s)")


def commit(connection: psycopg.Connection, refreshes: int) -> None:
    row = connection.execute("SELECT max(o_orderkey) FROM orders").fetchone()
    assert row is not None
    made = Refreshes(Random(SEED), row[0])
    for _ in range(refreshes):
        with connection.transaction():
            for statement in made.transaction():
                connection.execute(statement.encode())


async def followed(coordinator: Coordinator, engine: SparkEngine, number: int, start: Timestamp) -> tuple[str, ...]:
    """A line of the table, for one query."""
    context = PlanContext(state=coordinator.state, database="materialize", search_path=("public",), user="materialize")
    plan = plan_query(parse_query(QUERIES[number]), context, maintained=True)
    try:
        operators = stateful(plan)
    except NoRule as reason:
        return str(number), f"fallback: {reason}", "", "", "", ""
    computation = coordinator.computations.of_query(plan)
    try:
        begun = time.perf_counter()
        await computation.hydrate(start)
        hydrate_s = time.perf_counter() - begun
        steps, floors = [], []
        times = sorted(
            {
                at
                for id in plan.inputs
                for at in coordinator.inputs.change_times(id, start + 1, coordinator.latest_time() + 1)
            }
        )
        for at in times:
            begun = time.perf_counter()
            await computation.advance([at])
            steps.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await engine.run(EMPTY_JOB, {})
            floors.append(time.perf_counter() - begun)
    finally:
        computation.close()
    if len(steps) <= WARM:
        return str(number), "incremental", str(operators), f"{hydrate_s:.1f} s", "", ""
    step, floor = statistics.median(steps[WARM:]), statistics.median(floors[WARM:])
    multiple = f"{step / floor:.1f}"
    return str(number), "incremental", str(operators), f"{hydrate_s:.1f} s", f"{step * 1e3:.0f} ms", multiple


def measure(options: argparse.Namespace, engine: SparkEngine, directory: Path) -> list[Table]:
    files = generate(directory / "csv", options.scale)
    server = ServerThread(directory / "data", engine)
    try:
        coordinator = server.app.coordinator

        async def held() -> Timestamp:
            start = coordinator.latest_time()
            ids = [item.id for item in coordinator.state.items.values() if isinstance(item, CatalogTable)]
            coordinator.frontiers.hold(ids, start)
            return start

        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            load(connection, files)
            start = server.call(held())
            commit(connection, options.refreshes)
        rows = []
        for number in QUERIES:
            work = followed(coordinator, engine, number, start)
            rows.append(asyncio.run_coroutine_threadsafe(work, server._loop).result())
    finally:
        server.stop()
    about = (
        f"TPC-H at scale factor {options.scale:g}, {len(TABLES)} tables, random refreshes: the median step, and as "
        "multiples of an empty Spark job of the same run; operators: those that keep a state"
    )
    return [Table("tpch", about, ("query", "how", "operators", "hydration", "step", "empty jobs"), rows)]


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as name:
        engine = SparkEngine(directory=Path(name) / "spark", memory_mb=memory_mb(), archive=default_archive_directory())
        try:
            asyncio.run(engine.start())
            asyncio.run(engine.warm_up())
            return measure(options, engine, Path(name))
        finally:
            asyncio.run(engine.close())
