"""One dataflow's part of the engine, so that a slow one delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa

from server.spark import Runner

STATEMENTS_MAX = 2  # of a dataflow at a time; the engine has slots for more


class Share:
    """Runs a few statements at once and lets the others wait here, not where those of other dataflows wait."""

    def __init__(self, engine: Runner) -> None:
        self._engine = engine
        self._free = asyncio.Semaphore(STATEMENTS_MAX)

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        """As `Runner.run`."""
        async with self._free:
            return await self._engine.run(sql, views, patient=patient)
