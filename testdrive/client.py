"""A connection to a server: prepared statements with binary results and a timeout.

libpq is used through `psycopg.pq`, because statements must be sent unchanged with Parse, Describe, Bind and Execute,
and because each wait has a deadline. After the deadline the statement is cancelled, so that the connection remains
usable. If the server does not react to the cancellation within CANCEL_GRACE_S, the connection is closed.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from psycopg import OperationalError, ProgrammingError, conninfo, pq

from testdrive.report import CommandFailed
from testdrive.values import printed

DEFAULT_DATABASE = "materialize"
SYSTEM_USER = "mz_system"
CANCEL_GRACE_S = 5.0
CONNECT_TIMEOUT_S = 10

_COPY = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)


@dataclass(frozen=True, slots=True)
class Result:
    """Column names and printed values; both are empty for a statement without a result set."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


class SqlError(CommandFailed):
    """The server rejected a statement, or cannot be reached (`sqlstate` is then empty)."""

    def __init__(self, message: str, sqlstate: str = "", detail: str = "", hint: str = "") -> None:
        super().__init__(f"error{sqlstate and f' {sqlstate}'}: {message}")
        self.message, self.sqlstate, self.detail, self.hint = message, sqlstate, detail, hint


class StatementTimeout(CommandFailed):
    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the statement did not end within {timeout_s:g} s")


def with_database(url: str) -> str:
    """Returns the URL as a connection string with a database, since libpq's default is the user's name."""
    try:
        server = conninfo.conninfo_to_dict(url)
    except ProgrammingError as error:
        raise CommandFailed(f"cannot read the URL {url}: {error}", final=True) from error
    if server.get("dbname") or server.get("service") or os.environ.get("PGDATABASE"):
        return conninfo.make_conninfo(url)
    return conninfo.make_conninfo(url, dbname=DEFAULT_DATABASE)


class Client:
    """A connection that is opened by the first statement, and reopened by the next statement after it was lost.

    Scripts may connect as `mz_system`, a superuser that always exists in Materialize. If the server answers that this
    role does not exist, the client connects as the user of `admin_url` instead.
    """

    def __init__(self, url: str, admin_url: str | None = None) -> None:
        self.url = url
        self._admin_url = admin_url
        self._open: pq.abc.PGconn | None = None

    @property
    def in_failed_transaction(self) -> bool:
        return self._open is not None and self._open.transaction_status == pq.TransactionStatus.INERROR

    def query(self, sql: str, timeout_s: float) -> Result:
        """Runs one statement. Raises SqlError, StatementTimeout, or another CommandFailed if the script is wrong."""
        with self._within(timeout_s) as (connection, deadline):
            connection.send_prepare(b"", sql.encode())
            self._results(connection, deadline)
            connection.send_describe_prepared(b"")
            self._results(connection, deadline)
            connection.send_query_prepared(b"", [], result_format=pq.Format.BINARY)
            [result] = self._results(connection, deadline)
            return _decoded(result)

    def simple(self, sql: str, timeout_s: float) -> None:
        """Sends one Query message and discards its results. Raises SqlError if one of its statements fails."""
        with self._within(timeout_s) as (connection, deadline):
            connection.send_query(sql.encode())
            self._results(connection, deadline)

    def interrupt(self) -> None:
        """Cancels the statement that another thread runs on this connection, if any."""
        connection = self._open
        if connection is not None:
            with suppress(OperationalError):
                connection.get_cancel().cancel()

    def close(self) -> None:
        if self._open is not None:
            self._open.finish()
            self._open = None

    @contextmanager
    def _within(self, timeout_s: float) -> Iterator[tuple[pq.abc.PGconn, float]]:
        """Provides the connection and a deadline (of `time.monotonic()`) for one statement."""
        connection = self._connection()
        try:
            yield connection, time.monotonic() + timeout_s
        except TimeoutError:
            self._cancel(connection)
            raise StatementTimeout(timeout_s) from None
        except OperationalError as error:
            self.close()
            raise SqlError(str(error)) from error

    def _connection(self) -> pq.abc.PGconn:
        if self._open is None or self._open.status != pq.ConnStatus.OK:
            self.close()
            try:
                self._open = self._connected()
            except SqlError as error:
                if self._admin_url is None or f'role "{SYSTEM_USER}" does not exist' not in error.message:
                    raise
                self._open = self._connected(user=conninfo.conninfo_to_dict(self._admin_url).get("user"))
        return self._open

    def _connected(self, **other: Any) -> pq.abc.PGconn:
        """Opens a connection. `other` parameters override those of the URL."""
        info = conninfo.make_conninfo(
            with_database(self.url),
            connect_timeout=CONNECT_TIMEOUT_S,
            client_encoding="UTF8",
            application_name="testdrive",
            **other,
        )
        connection = pq.PGconn.connect(info.encode())
        if connection.status != pq.ConnStatus.OK:
            message = connection.get_error_message()
            connection.finish()
            raise SqlError(message)
        return connection

    def _results(self, connection: pq.abc.PGconn, deadline: float) -> list[pq.abc.PGresult]:
        results = _collect(connection, deadline)
        for result in results:
            if result.status in _COPY:
                self.close()
                raise CommandFailed("COPY is not supported here: run it with $ psql-execute", final=True)
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise _error(result)
        return results

    def _cancel(self, connection: pq.abc.PGconn) -> None:
        try:
            connection.get_cancel().cancel()
            _collect(connection, time.monotonic() + CANCEL_GRACE_S)
        except (OperationalError, TimeoutError):
            self.close()


def _collect(connection: pq.abc.PGconn, deadline: float) -> list[pq.abc.PGresult]:
    """Returns the results up to the end or the first COPY. Raises TimeoutError, OperationalError."""
    results: list[pq.abc.PGresult] = []
    while True:
        while connection.is_busy():
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([connection.socket], [], [], left_s)[0]:
                raise TimeoutError
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            return results
        results.append(result)
        if result.status in _COPY:
            return results


def _error(result: pq.abc.PGresult) -> SqlError:
    def field(name: pq.DiagnosticField) -> str:
        return (result.error_field(name) or b"").decode()

    return SqlError(
        field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message(),
        field(pq.DiagnosticField.SQLSTATE),
        field(pq.DiagnosticField.MESSAGE_DETAIL),
        field(pq.DiagnosticField.MESSAGE_HINT),
    )


def _decoded(result: pq.abc.PGresult) -> Result:
    columns = range(result.nfields)
    oids = [result.ftype(column) for column in columns]
    try:
        rows = [
            tuple(printed(oids[column], result.get_value(row, column)) for column in columns)
            for row in range(result.ntuples)
        ]
    except ValueError as error:
        raise CommandFailed(str(error), final=True) from error
    return Result(tuple((result.fname(column) or b"").decode() for column in columns), rows)
