"""A real PostgreSQL with the suite's tables. Its answers are the expected ones."""

from __future__ import annotations

from types import TracebackType

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from protocol.pgwire.types import NUMERIC
from tests.sql.answers import Answer, Column
from tests.sql.statements import Statement, table_definitions

DATABASE = "materialize"  # also the database of a Tidewire session, so that current_database() is equal

Cells = list[list[bytes | None]]


class Oracle:
    """A connection to a PostgreSQL whose database `materialize` holds the tables."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as maker:
            if maker.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
                maker.execute(f"CREATE DATABASE {DATABASE}")
        self._connection = psycopg.connect(dsn, dbname=DATABASE, autocommit=True)
        self._settings: tuple[tuple[str, str], ...] = ()
        self._connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; SET statement_timeout = 10000")
        for definition in table_definitions():
            self._connection.execute(definition.encode())

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def answer(self, statement: Statement) -> Answer:
        return answer_of(self._result(statement, binary=False))

    def binary(self, statement: Statement) -> Cells:
        """The rows in binary format, of a statement that returns rows."""
        return cells(self._result(statement, binary=True))

    def _result(self, statement: Statement, *, binary: bool) -> PGresult:
        self._set(statement.settings)
        result = self._connection.pgconn.exec_params(statement.sql.encode(), [], result_format=int(binary))
        assert result.status in (ExecStatus.TUPLES_OK, ExecStatus.FATAL_ERROR), f"no query: {statement.sql}"
        return result

    def _set(self, settings: tuple[tuple[str, str], ...]) -> None:
        if settings != self._settings:
            self._connection.execute("RESET ALL; SET statement_timeout = 10000")
            for name, value in settings:
                self._connection.execute("SELECT set_config(%s, %s, false)", (name, value))
            self._settings = settings


def answer_of(result: PGresult) -> Answer:
    """The answer that a result in text format represents."""
    if result.status == ExecStatus.FATAL_ERROR:
        state, message = map(result.error_field, (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY))
        return Answer(sqlstate=(state or b"").decode(), message=(message or b"").decode(errors="replace"))
    oids = [result.ftype(i) for i in range(result.nfields)]
    columns = (
        Column((result.fname(i) or b"").decode(), oid, result.fmod(i) if oid == NUMERIC.oid else -1)
        for i, oid in enumerate(oids)
    )
    rows = (tuple(None if cell is None else cell.decode() for cell in row) for row in cells(result))
    return Answer(tuple(columns), tuple(rows))


def cells(result: PGresult) -> Cells:
    return [[result.get_value(row, i) for i in range(result.nfields)] for row in range(result.ntuples)]
