"""One Spark engine for the whole test session, started when the first test asks for it; and a look at processes.

`--engine` chooses where Spark is: `embedded` in one JVM, `local-cluster` with executors in processes of their own, or
`connect` behind a Spark Connect server. For the last two only those tests are kept that compute on an engine. The mark
`cluster` is on what CI runs over them; `cluster("connect")` on what is for that engine alone.
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
    parser.addoption("--engine", choices=ENGINES, default="embedded", help="where the tests' Spark is")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    name = config.getoption("--engine")
    kept = [item for item in items if _belongs(item, name)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _belongs(item: pytest.Item, engine: str) -> bool:
    only = {name for mark in item.iter_markers("cluster") for name in mark.args}
    if only:
        return engine in only
    return engine == "embedded" or "engine" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--engine"))


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server that the whole session shares."""
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def engine_flags(engine_name: str, request: pytest.FixtureRequest) -> list[str]:
    """What makes `tidewire serve` compute there."""
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
    """A ready engine that the whole session shares; it may be awaited from any test's loop. Leave it running.

    It starts from a class archive if one is there, and makes none: that would take the processor from the tests.
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
    """The process in which the session's engine has Spark's driver."""

    engine: SparkEngine
    server: ConnectServer | None

    def kill(self) -> None:
        """kill -9."""
        if self.server is not None:
            self.server.kill()
        else:
            assert self.engine.jvm_pid is not None
            os.kill(self.engine.jvm_pid, signal.SIGKILL)

    def revive(self) -> None:
        """Starts it again, if the engine does not. Takes as long as Spark does."""
        if self.server is not None:
            self.server.start()


@pytest.fixture
def driver(engine: SparkEngine, engine_name: str, request: pytest.FixtureRequest) -> Driver:
    return Driver(engine, request.getfixturevalue("connect_server") if engine_name == "connect" else None)


def processes_naming(path: Path) -> list[int]:
    """The pids of the processes whose command line names `path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:  # it ended just now
                continue
            if os.fsencode(path) in command:
                found.append(int(entry.name))
    return found
