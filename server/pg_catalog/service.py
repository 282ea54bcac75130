"""The service of a catalog worker process: describes or runs a query over system relations."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import duckdb
import pyarrow as pa

from protocol.pgwire.errors import PgError
from server.pg_catalog.database import Database, Rows
from server.pg_catalog.errors import pg_error
from server.workers.messages import Call, arrow_stream


class CatalogService:
    """Owns the DuckDB databases of one worker process: one to describe queries, one to run them."""

    def __init__(self) -> None:
        self._blank, self._live = Database(), Database()
        self._revision: int | None = None
        self._rows: Rows | None = None
        self._no_rows: Rows | None = None

    def serve(self, request: bytes, call: Call) -> bytes:
        """Handles a pickled request. `call` fetches the rows of a relation from the server.

        ("describe", sql) returns pickled columns (name, DuckDB type), or a pickled PgError if DuckDB rejects the query.
        ("run", sql, revision, given) returns an Arrow stream of the rows; raises PgError if DuckDB rejects the query.
        MemoryError if DuckDB's memory limit is exceeded.
        """

        def rows(schema: str, name: str) -> pa.Table | None:
            stream = call("rows", schema, name)
            return None if stream is None else pa.ipc.open_stream(stream).read_all()

        match pickle.loads(request):
            case "describe", sql:
                self._no_rows = self._no_rows or rows
                return pickle.dumps(self._describe(sql, self._no_rows))
            case "run", sql, revision, given:
                if self._rows is None or revision != self._revision:
                    self._revision, self._rows = revision, rows
                return self._run(sql, self._rows, given)
        raise AssertionError(request)

    def _describe(self, sql: str, rows: Rows) -> list[tuple[str, str]] | PgError:
        try:
            return self._blank.columns(sql, rows)
        except duckdb.OutOfMemoryException as error:
            raise MemoryError from error
        except duckdb.Error as error:
            return pg_error(error)

    def _run(self, sql: str, rows: Rows, given: dict[tuple[str, str], bytes]) -> bytes:
        tables = {name: pa.ipc.open_stream(stream).read_all() for name, stream in given.items()}
        try:
            table = self._live.run(sql, rows, tables)
        except duckdb.OutOfMemoryException as error:
            raise MemoryError from error
        except duckdb.Error as error:
            raise pg_error(error) from error
        return arrow_stream(table)


def service() -> Callable[[bytes, Call], bytes]:
    """The service of a worker for queries over system catalogs."""
    return CatalogService().serve
