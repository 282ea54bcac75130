"""A Spark engine for measurements within this process."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine

Result = TypeVar("Result")


def memory_mb() -> int:
    """The heap of Spark in benchmarks: a quarter of the machine's memory, between 1 and 8 GiB."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1024, min(8192, physical // 4 // 2**20))


def with_engine(measurement: Callable[[SparkEngine], Awaitable[Result]]) -> Result:
    """The result of a measurement with an engine of its own, which has been warmed up."""
    return asyncio.run(_measured(measurement))


async def _measured(measurement: Callable[[SparkEngine], Awaitable[Result]]) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), memory_mb=memory_mb(), archive=default_archive_directory())
        await engine.start()
        try:
            await engine.warm_up()
            return await measurement(engine)
        finally:
            await engine.close()
