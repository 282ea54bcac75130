"""Sum and count by key, maintained by Tidewire, by Spark Structured Streaming and by Pathway, over the same changes.

The three alternate. The time is, for Tidewire, that of a step; for Structured Streaming, the duration of the trigger's
execution that Spark reports; for Pathway, the time from the commit of the rows to the end of their timestamp. Pathway
is not a dependency. `--pathway-python` names a Python that has it: `python -m venv DIR && DIR/bin/pip install pathway`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from catalog import updates
from server.dataflow.arrangements.arrangement import Storage
from server.spark.embedded.java_runtime import find_java
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from tests.bench.engines import memory_mb
from tests.bench.growing import START, Growing, planned
from tests.bench.maintained import maintained
from tests.bench.servers import Servers, Table

QUERY = "SELECT k, sum(v), count(*) FROM t GROUP BY k"
EMPTY_JOB = "SELECT id FROM range(0, 1, 1, 1)"
PROGRAMS = Path(__file__).parent / "others"
WARM = 10


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--comparison-base", type=int, default=1_000_000, help="rows of the table (%(default)s)")
    parser.add_argument("--comparison-rounds", type=int, default=30, help="steps of each kind (%(default)s)")
    parser.add_argument("--pathway-python", default=sys.executable, help="a Python that has pathway (%(default)s)")


class Other:
    """The process of another engine, see `others`."""

    def __init__(self, command: list[str], environment: dict[str, str], stack: ExitStack) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        self._answer("ready")

    def step(self, file: Path) -> float:
        """The seconds that it needs for the changes in a file."""
        assert self._process.stdin is not None
        print(file, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self, expected: str | None = None) -> str:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) and expected not in (None, line.strip()):
            pass  # the line that it prints at its start
        if not line:
            raise RuntimeError(f"{self._process.args} ended")
        return line.strip()


def write(changes: pa.Table, file: Path) -> Path:
    parquet.write_table(changes.select(["c0", "c1", updates.DIFF]).rename_columns(["k", "v", "diff"]), file)
    return file


def others(base: pa.Table, directory: Path, pathway_python: str, stack: ExitStack) -> dict[str, Other]:
    java = find_java().executable.resolve().parents[1]
    environment = {**os.environ, "JAVA_HOME": str(java)}
    streaming = [sys.executable, str(PROGRAMS / "streaming_totals.py"), str(write(base, directory / "base.parquet"))]
    found = {"Structured Streaming": Other([*streaming, str(directory)], environment, stack)}
    has_pathway = [pathway_python, "-c", "import pathway, pyarrow"]
    if subprocess.run(has_pathway, capture_output=True, check=False).returncode == 0:
        file = write(base, directory / "base-pathway.parquet")
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        found["Pathway"] = Other([pathway_python, str(PROGRAMS / "pathway_totals.py"), str(file)], own, stack)
    else:
        print(
            "Pathway is not there: python -m venv DIR && DIR/bin/pip install pathway, --pathway-python DIR/bin/python"
        )
    return found


async def measure(options: argparse.Namespace) -> list[Table]:
    plan = planned(QUERY)
    growing = Growing(options.comparison_base, plan.inputs)
    (table,) = plan.inputs
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = SparkEngine(directory=directory / "spark", memory_mb=memory_mb(), archive=default_archive_directory())
        await engine.start()
        try:
            await engine.warm_up()
            base = updates.with_diff(await growing.rows(table, START), 1)
            compared = others(base, directory, options.pathway_python, stack)
            storage = Storage()
            stack.callback(storage.close)
            computation = maintained(plan, engine, growing, storage)
            await computation.hydrate(START)
            rows = []
            for changed in (1, 100, 10_000):
                times: dict[str, list[float]] = {name: [] for name in ("Tidewire", *compared, "an empty Spark job")}
                for number in range(WARM + options.comparison_rounds):
                    now = growing.change(changed)
                    changes = await growing.changes(table, now, now + 1)
                    begun = time.perf_counter()
                    await computation.advance([now])
                    times["Tidewire"].append(time.perf_counter() - begun)
                    for name, other in compared.items():
                        file = directory / f"{name}-{changed}-{number}.parquet"
                        times[name].append(other.step(write(changes, file)))
                    begun = time.perf_counter()
                    await engine.run(EMPTY_JOB, {})
                    times["an empty Spark job"].append(time.perf_counter() - begun)
                floor = statistics.median(times["an empty Spark job"][WARM:])
                for name, seconds in times.items():
                    median = statistics.median(seconds[WARM:])
                    rows.append((f"{changed:,}", name, f"{median * 1e3:,.1f} ms", f"{median / floor:.1f}"))
            about = (
                f"Sum and count by key over {options.comparison_base:,} rows, {options.comparison_base // 10:,} keys: "
                "from the changed rows to the changed groups, medians, and multiples of an empty Spark job"
            )
            return [Table("comparison", about, ("changed rows", "engine", "a step", "empty jobs"), rows)]
        finally:
            await engine.close()


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    return asyncio.run(measure(options))
