"""A limit of the Spark statements that one dataflow runs concurrently, so that it cannot delay other dataflows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa

from server.spark import Runner

STATEMENTS_MAX = 2  # per dataflow at a time, so that other dataflows get slots of the engine


class StatementLimit:
    """Runs a limited number of statements at a time. The others wait here instead of in the engine's queue."""

    def __init__(self, engine: Runner, most: int) -> None:
        self._engine = engine
        self._most = most
        self._free = asyncio.Semaphore(most)

    def raise_to(self, most: int) -> None:
        for _ in range(most - self._most):
            self._free.release()
        self._most = max(self._most, most)

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        """As `Runner.run`."""
        async with self._free:
            return await self._engine.run(sql, views, patient=patient)
