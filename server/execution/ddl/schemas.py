"""CREATE SCHEMA."""

from __future__ import annotations

from catalog.objects.namespaces import Schema
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import unless_exists
from server.execution.ddl.named_roles import role_named
from server.session_state.context import Context
from server.sql.grammar.statements.objects import CreateSchema


def create(context: Context, statement: CreateSchema) -> CatalogState:
    """Executes CREATE SCHEMA."""
    owner = None if statement.owner is None else role_named(context, statement.owner)
    if statement.name is not None:
        *qualifier, name = statement.name.parts
    else:
        assert owner is not None
        qualifier, name = [], owner.name
    database_name = qualifier[0] if qualifier else context.settings["database"]
    database = context.state.database_named(database_name)
    if database is None:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{database_name}" does not exist')
    if name.startswith(("pg_", "mz_")):
        raise PgError(
            SqlState.RESERVED_NAME,
            f'unacceptable schema name "{name}"',
            detail='The prefixes "pg_" and "mz_" are reserved for system schemas.',
        )
    privileges.require(context.state, context.role, database.id, Privilege.CREATE)
    if owner is not None and not privileges.may_set_role(context.state, context.role, owner.id):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'must be able to SET ROLE "{owner.name}"')
    id, state = context.state.new_id()
    try:
        state = state.with_schema(Schema(id, database.id, name))
        return state if owner is None else state.with_owner(id, owner.id)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
