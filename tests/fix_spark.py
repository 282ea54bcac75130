"""The Spark engine that all tests of a pytest process share. It starts when the first test requests it.

`--engine` selects where Spark runs: `embedded` in one JVM, `local-cluster` with executors in separate processes, or
`connect` behind a Spark Connect server. With the last two, only tests that use the shared engine run. The mark
`cluster` selects the tests that CI runs on them; `cluster("connect")` restricts a test to that engine.

Every test that uses the shared engine gets the mark `spark`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.dataflow.arrangements import run_files
from server.spark.embedded.java_runtime import find_java
from server.spark.embedded.jvm import ClassArchive, default_archive_directory
from server.spark.engine import SparkEngine
from server.sql.functions import worker
from tests.fix_connect import ConnectServer

MEMORY_MB = 1024
ENGINES = ("embedded", "local-cluster", "connect")
MASTER = "local-cluster[2,1,1024]"
EXECUTOR_MEMORY = "spark.executor.memory=768m"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, default="embedded", help="where the tests' Spark runs")


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _uses_engine(item):
            item.add_marker("spark")
    name = config.getoption("--engine")
    selected = {item for item in items if _runs_on(item, name)}
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


def _uses_engine(item: pytest.Item) -> bool:
    return "engine" in getattr(item, "fixturenames", ())


def _runs_on(item: pytest.Item, engine: str) -> bool:
    only = {name for mark in item.iter_markers("cluster") for name in mark.args}
    if only:
        return engine in only
    return engine == "embedded" or _uses_engine(item)


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--engine"))


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server that all tests of the process share."""
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def engine_flags(engine_name: str, request: pytest.FixtureRequest) -> list[str]:
    """The flags with which `tidewire serve` uses the selected engine."""
    match engine_name:
        case "local-cluster":
            return ["--spark-master", MASTER, "--spark-conf", EXECUTOR_MEMORY]
        case "connect":
            return ["--spark-remote", request.getfixturevalue("connect_server").url]
    return []


@pytest.fixture(scope="session")
def engine(
    engine_name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkEngine]:
    """A ready engine that all tests of the process share and must not close. Any event loop may await it.

    It starts from a class archive if one exists, but writes none, because that would slow the tests down.
    """
    archives = default_archive_directory()
    shared = SparkEngine(
        directory=tmp_path_factory.mktemp("spark"),
        master=MASTER if engine_name == "local-cluster" else "local[*]",
        remote=request.getfixturevalue("connect_server").url if engine_name == "connect" else None,
        memory_mb=MEMORY_MB,
        archive=archives if ClassArchive.at(archives, find_java()).path.exists() else None,
        functions={**worker.udfs(), **run_files.FUNCTIONS},
        conf=dict([EXECUTOR_MEMORY.split("=")]) if engine_name == "local-cluster" else None,
    )
    asyncio.run(shared.start())
    yield shared
    asyncio.run(shared.close())


@dataclass
class Driver:
    """The process of the shared engine that contains Spark's driver."""

    engine: SparkEngine
    server: ConnectServer | None

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self.server is not None:
            self.server.kill()
        else:
            assert self.engine.jvm_pid is not None
            os.kill(self.engine.jvm_pid, signal.SIGKILL)

    def revive(self) -> None:
        """Restarts a Connect server and waits until it listens. The engine restarts an embedded driver itself."""
        if self.server is not None:
            self.server.start()


@pytest.fixture
def driver(engine: SparkEngine, engine_name: str, request: pytest.FixtureRequest) -> Driver:
    return Driver(engine, request.getfixturevalue("connect_server") if engine_name == "connect" else None)


def processes_naming(path: Path) -> list[int]:
    """Returns the ids of the processes whose command line contains `path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:  # the process has ended
                continue
            if os.fsencode(path) in command:
                found.append(int(entry.name))
    return found
