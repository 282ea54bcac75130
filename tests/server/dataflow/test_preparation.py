"""After hydration, the statements of steps run over no rows, so that Spark has planned them before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.spark import Engine
from server.spark.engine import SparkEngine
from tests.server.dataflow.histories import followed, planned, random_history

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT k + 1, upper(s) FROM t WHERE v > 0 OR s IS NULL",
    "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k",
    "SELECT t.k, t.s, u.w * 2 FROM t LEFT JOIN u ON t.k = u.k AND u.f > 0",
    "SELECT k, count(*), sum(v), max(v) FROM t GROUP BY k",
    "SELECT string_agg(s, ',' ORDER BY s), sum(f) FROM t, u",
    "SELECT k, v, s FROM t ORDER BY v DESC NULLS LAST, k, s LIMIT 4",
    "SELECT k FROM t INTERSECT ALL SELECT x FROM w",
]
Kind = tuple[str, tuple[tuple[str, str], ...]]


class Recorder:
    """An engine that records the statements that run, each with the schemas of its tables."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.prepared = asyncio.Queue[Kind]()
        self.run_with_rows: set[Kind] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def run(self, sql: str, views: Mapping[str, pa.Table], **options: Any) -> pa.Table:
        kind = (sql, tuple((name, str(table.schema)) for name, table in views.items()))
        if options.get("background"):
            self.prepared.put_nowait(kind)
        else:
            self.run_with_rows.add(kind)
        return await self._engine.run(sql, views, **options)


@pytest.mark.ivm
@pytest.mark.parametrize("sql", QUERIES)
async def test_the_first_step_runs_prepared_statements(sql: str, engine: SparkEngine) -> None:
    recorder = Recorder(engine)
    storage = Storage()
    computation = followed(planned(sql), random_history(1, 4), cast(Engine, recorder), storage)
    try:
        await computation.hydrate(Timestamp(1))
        statements = [one for operator in computation.operators for one in operator.statements]
        assert statements
        prepared = {await recorder.prepared.get() for _ in statements}
        recorder.run_with_rows.clear()
        for time in computation.times(2, 5):
            await computation.advance([time])
        assert recorder.run_with_rows
        assert recorder.run_with_rows <= prepared
    finally:
        computation.close()
        storage.close()
