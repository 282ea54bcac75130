"""An engine for measurements within this process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from server.spark.engine import SparkEngine
from server.spark.jvm import default_archive_directory

Result = TypeVar("Result")


def with_engine(measurement: Callable[[SparkEngine], Awaitable[Result]]) -> Result:
    """What a measurement gives with an engine of its own, which has been warmed up."""
    return asyncio.run(_measured(measurement))


async def _measured(measurement: Callable[[SparkEngine], Awaitable[Result]]) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        engine = SparkEngine(directory=Path(directory), archive=default_archive_directory())
        await engine.start()
        try:
            await engine.warm_up()
            return await measurement(engine)
        finally:
            await engine.close()
