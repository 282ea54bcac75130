"""Queries over system catalogs. DuckDB runs them in a worker process, over rows that the server sends."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from protocol.pgwire.errors import PgError
from server.workers.messages import REQUEST, arrow_stream, framed
from server.workers.pool import Answer, WorkerPool

WORKERS_MAX = 2
DESCRIPTIONS_MAX = 1_024

Columns = list[tuple[str, str]]
"""Names and DuckDB types."""
Rows = Callable[[str, str], pa.Table | None]
"""Returns the rows of a relation by DuckDB schema and name; None if there is no such relation."""


class Undescribed(Exception):
    """Planning needs the columns of this query. Call `CatalogEngine.describe` with it, then plan again."""

    def __init__(self, sql: str) -> None:
        super().__init__(sql)
        self.sql = sql


class CatalogEngine:
    """Describes and runs queries over system catalogs. Its methods, except `columns`, are called from one event loop.

    Each query has a worker to itself while it runs, with limits on time (`pool.REQUEST_S_MAX`) and memory.
    """

    def __init__(self, no_rows: Rows) -> None:
        """`no_rows` returns empty relations, from which the columns of queries are determined."""
        self._no_rows = no_rows
        self._pool = WorkerPool("server.pg_catalog.service:service", WORKERS_MAX, takes_turns=True)
        self._descriptions: OrderedDict[bytes, Columns | PgError] = OrderedDict()
        self.prepare, self.close = self._pool.prepare, self._pool.close

    def columns(self, sql: str) -> Columns:
        """Returns the columns of a described query. Undescribed if `describe` was not called, PgError of DuckDB."""
        found = self._descriptions.get(_key(sql))
        if found is None:
            raise Undescribed(sql)
        if isinstance(found, PgError):
            raise PgError(found.sqlstate, found.message, detail=found.detail, hint=found.hint)
        return found

    async def describe(self, sql: str) -> None:
        """Determines a query's columns, which do not depend on rows. DuckDB's error is kept for `columns`.

        Raises other PgErrors like `run`.
        """
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
        """Returns the query's rows. `rows` changes only with `revision`; `given` are rows that differ for each query.

        PgError in PostgreSQL's words; 53200 beyond the worker's memory, otherwise as `WorkerPool.run`.
        """

        sent = {name: arrow_stream(table) for name, table in given.items()}
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
    return None if table is None else arrow_stream(table)
