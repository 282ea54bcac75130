"""The kind of sink `postgres`."""

from __future__ import annotations

from pathlib import Path

from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Written
from server.egress.postgres.connection import Connection
from server.egress.postgres.statements import FRONTIERS, FRONTIERS_EXIST
from server.egress.postgres.table import Table
from server.egress.postgres.target import Target
from server.egress.sink_kind import SinkDefinition
from server.ingest.postgres.connection import Server
from server.ingest.upstream import UpstreamError
from server.spark import Runner

_MAY_CREATE = """
SELECT has_database_privilege(current_database(), 'CREATE') AS schemas,
       has_database_privilege(current_database(), 'TEMPORARY') AS staging
"""
_MAY_WRITE = f"SELECT has_table_privilege('{FRONTIERS}', 'SELECT, INSERT, UPDATE, DELETE')"


class PostgresSink:
    """CREATE SINK ... INTO POSTGRES CONNECTION c TABLE t [KEY (...)]."""

    async def check(self, definition: SinkDefinition) -> None:
        if definition.format is not None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "FORMAT and ENVELOPE of a sink into PostgreSQL are not supported",
                hint="The columns of the table are those of the collection.",
            )
        if "key not enforced" in definition.options:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "KEY ... NOT ENFORCED of a sink into PostgreSQL is not supported",
                hint="Omit NOT ENFORCED: a key of the table in PostgreSQL is enforced.",
            )
        server, target = Server.of(definition.connection), Target.of(definition)
        try:
            connection = await Connection.open(server)
            try:
                with server.understanding():
                    await _check_privileges(connection, server)
                    if await target.statements(connection) is None:
                        await target.check_may_create(connection)
                    elif definition.with_snapshot:
                        await target.check_empty(connection)
            finally:
                await connection.close()
        except UpstreamError as error:
            raise PgError(SqlState.CONNECTION_FAILURE, error.message, hint=error.hint) from error

    def downstream(
        self, definition: SinkDefinition, written: Written, runner: Runner, scratch: Path | None = None
    ) -> Table:
        return Table(definition, written)

    async def dropped(self, definition: SinkDefinition) -> None:
        """The table remains."""
        table = Table(definition, Written())
        try:
            await table.forget()
        finally:
            await table.close()


async def _check_privileges(connection: Connection, server: Server) -> None:
    """PgError if the user may not store frontiers, or not create temporary tables."""
    may = (await connection.rows(_MAY_CREATE))[0]
    if (await connection.rows(FRONTIERS_EXIST))[0][0]:
        if not (await connection.rows(_MAY_WRITE))[0][0]:
            raise _denied(server, f"write table {FRONTIERS}", f"GRANT SELECT, INSERT, UPDATE, DELETE ON {FRONTIERS}")
    elif not may["schemas"]:
        raise _denied(server, "create schema tidewire", "CREATE SCHEMA tidewire AUTHORIZATION ...")
    if not may["staging"]:
        raise _denied(server, "create temporary tables", "GRANT TEMPORARY ON DATABASE ...")


def _denied(server: Server, action: str, remedy: str) -> PgError:
    message = f'permission denied for user "{server.user}" of {server} to {action}'
    return PgError(SqlState.INSUFFICIENT_PRIVILEGE, message, hint=f"Allow it there: {remedy}.")
