"""CREATE SCHEMA."""

from __future__ import annotations

from catalog.objects import Schema
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import unless_exists
from server.session_state.context import Context
from server.sql.grammar.statements.objects import CreateSchema


def create(context: Context, statement: CreateSchema) -> CatalogState:
    """Executes CREATE SCHEMA."""
    *qualifier, name = statement.name.parts
    database_name = qualifier[0] if qualifier else context.settings["database"]
    database = context.state.database_named(database_name)
    if database is None:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{database_name}" does not exist')
    if name.startswith(("pg_", "mz_")):
        raise PgError(
            SqlState.INVALID_SCHEMA_NAME,
            f'unacceptable schema name "{name}"',
            detail='The prefixes "pg_" and "mz_" are reserved for system schemas.',
        )
    privileges.require(context.state, context.role, database.id, Privilege.CREATE)
    id, state = context.state.new_id()
    try:
        return state.with_schema(Schema(id, database.id, name))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
