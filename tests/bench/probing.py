"""Steps of queries whose state Spark's executors search, compared with the same queries with state in the server."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from server.dataflow.arrangements import run_files
from server.dataflow.arrangements.arrangement import Arranger, Storage
from server.dataflow.arrangements.file_arrangement import EXECUTORS, Executors
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from tests.bench.growing import START, Growing, planned
from tests.bench.incremental import EMPTY_JOB, QUERIES
from tests.bench.maintained import maintained
from tests.bench.servers import Servers, Table

CHANGED = 100
WARM = 8
NAMES = ("inner join", "sum and count by key", "min and max by key", "top 10")


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--probed", default="10000,1000000", help="rows of the tables (%(default)s)")
    parser.add_argument("--probes", type=int, default=24, help="steps of each query (%(default)s)")


async def measure(sizes: list[int], rounds: int) -> Table:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = SparkEngine(
            directory=directory, archive=default_archive_directory(), functions=dict(run_files.FUNCTIONS)
        )
        await engine.start()
        stack.push_async_callback(engine.close)
        await engine.warm_up()
        storage = Storage(directory)
        stack.callback(storage.close)
        executors = Executors(directory / "arrangements", engine, storage, lambda: EXECUTORS)
        stack.callback(executors.join)
        stack.callback(executors.close)
        rows = [await compared(name, size, rounds, engine, (storage, executors)) for size in sizes for name in NAMES]
    return Table(
        "probing",
        f"Steps of {CHANGED} changed rows, state in the server and probed by executors",
        ("query", "rows", "server", "executors", "ratio", "empty jobs", "MiB in the server"),
        rows,
    )


async def compared(
    name: str, size: int, rounds: int, engine: SparkEngine, places: tuple[Arranger, Arranger]
) -> tuple[str, ...]:
    """Both in alternation, so that other load on the machine affects both."""
    plan = planned(QUERIES[name])
    growing = Growing(size, plan.inputs)
    followed = [maintained(plan, engine, growing, place) for place in places]
    for computation in followed:
        await computation.hydrate(START)
    took: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        now = growing.change(CHANGED)
        for seconds, computation in zip(took, followed, strict=False):
            begun = time.perf_counter()
            await computation.advance([now])
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await engine.run(EMPTY_JOB, {})
        took[-1].append(time.perf_counter() - begun)
    kept = [sum(a.memory_bytes for _, a in computation.arrangements) / (1 << 20) for computation in followed]
    for computation in followed:
        computation.close()
    server, executors, floor = (statistics.median(seconds[WARM:]) for seconds in took)
    return (
        name,
        f"{size:,}",
        f"{server * 1e3:.1f} ms",
        f"{executors * 1e3:.1f} ms",
        f"{executors / server:.2f} x",
        f"{server / floor:.1f}, {executors / floor:.1f}",
        f"{kept[0]:.1f}, {kept[1]:.1f}",
    )


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    return [asyncio.run(measure([int(size) for size in options.probed.split(",")], options.probes))]
