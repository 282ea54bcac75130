"""An engine that counts its statements and measures their duration, including the wait for a slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pyarrow as pa

from server.runtime.metrics import CANCELED, ERROR, OK, Metrics
from server.spark import Engine, EngineUnavailable


class MeasuredEngine:
    """Wraps an engine and records the duration of each statement by outcome. For one event loop."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    @property
    def ready(self) -> bool:
        return self._engine.ready

    @property
    def unavailable(self) -> EngineUnavailable | None:
        return self._engine.unavailable

    @property
    def running(self) -> int:
        return self._engine.running

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def jvm_pid(self) -> int | None:
        return self._engine.jvm_pid

    async def start(self) -> None:
        await self._engine.start()

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        begun, outcome = time.monotonic(), ERROR
        try:
            rows = await self._engine.run(sql, views, patient=patient, background=background)
            outcome = OK
        except asyncio.CancelledError:
            outcome = CANCELED
            raise
        finally:
            self._metrics.spark_seconds[outcome].observe(time.monotonic() - begun)
        return rows

    async def warm_up(self) -> None:
        await self._engine.warm_up()

    async def close(self) -> None:
        await self._engine.close()
