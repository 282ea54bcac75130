"""One Spark engine for the whole test session, started when the first test asks for it; and a look at processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.spark.engine import SparkEngine
from server.spark.java import find_java
from server.spark.jvm import ClassArchive, default_archive_directory
from server.sql.functions import worker

MEMORY_MB = 1024


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """A ready engine that the whole session shares; it may be awaited from any test's loop. Leave it running.

    It starts from a class archive if one is there, and makes none: that would take the processor from the tests.
    """
    archives = default_archive_directory()
    archive = archives if ClassArchive.at(archives, find_java()).path.exists() else None
    directory = tmp_path_factory.mktemp("spark")
    shared = SparkEngine(directory=directory, memory_mb=MEMORY_MB, archive=archive, functions=worker.udfs())
    asyncio.run(shared.start())
    yield shared
    asyncio.run(shared.close())


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
