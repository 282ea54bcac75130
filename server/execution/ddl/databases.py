"""CREATE DATABASE."""

from __future__ import annotations

from catalog.acls import AclItem
from catalog.objects.namespaces import Database, Schema
from catalog.roles import PUBLIC, Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.database_options import check_options
from server.execution.ddl.named_objects import unless_exists
from server.session_state.context import Context
from server.sql.grammar.statements.objects import CreateDatabase


def create(context: Context, statement: CreateDatabase) -> CatalogState:
    """Executes CREATE DATABASE. The database has a schema public."""
    if context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "CREATE DATABASE cannot run inside a transaction block")
    require_create_db(context, "create")
    owner_name = check_options(context, statement.options)
    owner = context.role if owner_name is None else privileges.find_role(context.state, owner_name).id
    if owner_name is not None and not privileges.may_set_role(context.state, context.role, owner):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'must be able to SET ROLE "{owner_name}"')
    id, state = context.state.new_id()
    schema_id, state = state.new_id()
    try:
        state = state.with_database(Database(id, statement.name.name))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
    if owner_name is not None:
        state = state.with_owner(id, owner)
    state = state.with_schema(Schema(schema_id, id, "public")).with_owner(schema_id, owner)
    # PUBLIC has USAGE on schema public, as in PostgreSQL
    usage = AclItem(PUBLIC, owner, frozenset((Privilege.USAGE,)))
    return state.with_acls({schema_id: (AclItem(owner, owner, Schema.privileges), usage)})


def require_create_db(context: Context, verb: str) -> None:
    """PgError 42501 if the role has neither CREATEDB nor SUPERUSER."""
    role = context.state.roles.get(context.role)
    if role is None or not (role.superuser or role.create_db):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {verb} database")
