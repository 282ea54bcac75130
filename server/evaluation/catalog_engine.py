"""Queries over system catalogs: DuckDB runs them in a worker process, over rows that the server gives it."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from protocol.pgwire.errors import PgError
from server.evaluation.messages import REQUEST, framed
from server.evaluation.pool import Answer, WorkerPool

WORKERS_MAX = 2
DESCRIPTIONS_MAX = 1_024

Columns = list[tuple[str, str]]
"""Names and DuckDB types."""
Rows = Callable[[str, str], pa.Table | None]
"""The rows of a relation by DuckDB schema and name, None if there is no such relation."""


class Undescribed(Exception):
    """Planning needs the columns of this query: `CatalogEngine.describe` it, then plan again."""

    def __init__(self, sql: str) -> None:
        super().__init__(sql)
        self.sql = sql


class CatalogEngine:
    """Describes and runs queries over system catalogs. Its methods are called from one event loop, but for `columns`.

    Each query has a worker to itself while it runs, with limits on time (`pool.REQUEST_S_MAX`) and memory.
    """

    def __init__(self, no_rows: Rows, workers_max: int = WORKERS_MAX) -> None:
        """`no_rows` returns relations without rows, from which the columns of queries are found."""
        self._no_rows = no_rows
        self._pool = WorkerPool("catalog", workers_max)
        self._descriptions: OrderedDict[bytes, Columns | PgError] = OrderedDict()
        self.prepare, self.close = self._pool.prepare, self._pool.close

    def columns(self, sql: str) -> Columns:
        """The columns of a query that was described. Undescribed if it was not; PgError if DuckDB does not take it."""
        found = self._descriptions.get(_key(sql))
        if found is None:
            raise Undescribed(sql)
        if isinstance(found, PgError):
            raise PgError(found.sqlstate, found.message, detail=found.detail, hint=found.hint)
        return found

    async def describe(self, sql: str) -> None:
        """Finds the columns of a query; they do not depend on rows. PgError as `run`, but what DuckDB says is kept."""
        request = framed(REQUEST, pickle.dumps(("describe", sql)))
        body = await self._pool.run(request, _answering(self._no_rows))
        self._descriptions[_key(sql)] = pickle.loads(body)
        if len(self._descriptions) > DESCRIPTIONS_MAX:
            self._descriptions.popitem(last=False)

    async def run(
        self,
        sql: str,
        revision: int,
        rows: Rows,
        given: Mapping[tuple[str, str], pa.Table],
    ) -> pa.Table:
        """The query's rows. `rows` are the same as long as `revision` is; `given` are those that differ each time.

        PgError in PostgreSQL's words; 53200 beyond the worker's memory, otherwise as `WorkerPool.run`.
        """

        sent = {name: _stream(table) for name, table in given.items()}
        request = framed(REQUEST, pickle.dumps(("run", sql, revision, sent)))
        return pa.ipc.open_stream(await self._pool.run(request, _answering(rows))).read_all()


def _key(sql: str) -> bytes:
    return hashlib.sha256(sql.encode()).digest()


def _answering(rows: Rows) -> Answer:
    async def answer(name: str, arguments: tuple[Any, ...]) -> bytes | None:
        return await asyncio.to_thread(_table, rows, *arguments)

    return answer


def _table(rows: Rows, schema: str, name: str) -> bytes | None:
    table = rows(schema, name)
    return None if table is None else _stream(table)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
