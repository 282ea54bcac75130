"""Spark's Python workers are forked with the modules that they need."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from server.dataflow.arrangements import run_files
from server.spark.engine import SparkEngine
from server.spark.python_functions import modules_of
from server.sql.functions import worker
from tests.bench.processes import descendants

FUNCTIONS = {**worker.udfs(), **run_files.FUNCTIONS}
UNPICKLED = """
import pickle, sys
from server.spark.worker_daemon import import_modules
import_modules(["pyspark.worker", *sys.argv[1].split()])
before = set(sys.modules)
from server.spark.python_functions import command, pickled
from server.sql.functions import worker
for function, result in worker.udfs().values():
    pickle.loads(pickled(function, result))
print(*sorted(set(sys.modules) - before))
"""


def test_a_worker_imports_nothing_when_it_gets_a_function() -> None:
    arguments = [sys.executable, "-c", UNPICKLED, modules_of(FUNCTIONS)]
    found = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_are_forked_by_the_daemon(engine: SparkEngine) -> None:
    sql = """SELECT pg_text('["FUNCTION lpad(text, integer)", ["text", "int4"], ""]', c0, 3).v AS c0 FROM d0"""
    rows = asyncio.run(engine.run(sql, {"d0": pa.table({"c0": ["a", "b"]})}))
    assert rows.to_pydict() == {"c0": ["  a", "  b"]}
    assert engine.jvm_pid is not None
    lines = [line for line in map(command_line, descendants(engine.jvm_pid)) if "pyspark.worker" in line]
    assert lines
    assert all("server.spark.worker_daemon" in line for line in lines)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
