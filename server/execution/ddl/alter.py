"""ALTER of databases, schemas and items: RENAME TO, OWNER TO, and SET or RESET (RETAIN HISTORY)."""

from __future__ import annotations

from dataclasses import replace

from catalog.objects import Database, Domain, EnumType, Index, Item, MaterializedView, Retained, Schema, Sequence, View
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.databases import require_create_db
from server.execution.ddl.named_objects import altered_object, find_object, name_taken
from server.execution.ddl.retention import retained_ms
from server.execution.ddl.roles import role_named
from server.execution.user_types import with_type
from server.session_state.context import Context
from server.sql.grammar.statements.objects import AlterOwner, AlterRename, AlterRetention, ObjectKind
from server.sql.type_names import UserType


def rename(context: Context, statement: AlterRename) -> CatalogState:
    """Executes ALTER ... RENAME TO. As in PostgreSQL, ALTER TABLE also renames views and indexes."""
    state, new = context.state, statement.new_name.name
    if statement.kind is ObjectKind.TABLE:
        named = find_object(context, state, statement.kind, statement.name)
        if isinstance(named, (View, MaterializedView, Index)):
            statement = replace(statement, kind=ObjectKind(named.kind))
    found = altered_object(context, statement)
    if found is None:
        return state
    privileges.require_owner(state, context.role, found)
    try:
        match found:
            case Database():
                require_create_db(context, "rename")
                return state.with_database(replace(found, name=new))
            case Schema():
                assert found.database_id is not None
                privileges.require(state, context.role, found.database_id, Privilege.CREATE)
                state = state.with_schema(replace(found, name=new))
                for item in [item for item in state.items_in(found.id) if isinstance(item, UserType)]:
                    state = with_type(state, item)  # messages name the schema
                return state
            case EnumType() | Domain():
                privileges.require(state, context.role, found.schema_id, Privilege.CREATE)
                return with_type(state, replace(found, name=new))
            case Item():
                privileges.require(state, context.role, found.schema_id, Privilege.CREATE)
                return state.with_item(replace(found, name=new))
    except NameTaken as error:
        raise name_taken(error, statement.new_name.position) from None


def change_owner(context: Context, statement: AlterOwner) -> CatalogState:
    """Executes ALTER ... OWNER TO."""
    state = context.state
    found = altered_object(context, statement)
    if found is None:
        return state
    if isinstance(found, Sequence) and found.owner_table is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'cannot change owner of sequence "{found.name}"',
            detail=f'Sequence "{found.name}" is linked to table "{state.items[found.owner_table].name}".',
        )
    if isinstance(found, Item) and found.part_of is not None:
        whole = "table" if isinstance(found, Index) else "source"
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'cannot change owner of {found.kind} "{found.name}"',
            hint=f"Change the ownership of the {found.kind}'s {whole} instead.",
        )
    role = role_named(context, statement.owner)
    if state.owner(found.id) == role.id:
        return state
    privileges.require_owner(state, context.role, found)
    if not privileges.is_member(state, context.role, role.id):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'must be able to SET ROLE "{role.name}"')
    if not privileges.is_superuser(state, context.role):
        match found:  # except for superusers, ownership requires the right to create the object
            case Database():
                require_create_db(context, "change owner of")
            case Schema():
                assert found.database_id is not None
                privileges.require(state, context.role, found.database_id, Privilege.CREATE)
            case Item():
                privileges.require(state, role.id, found.schema_id, Privilege.CREATE)
    return state.with_owner(found.id, role.id)


def change_retention(context: Context, statement: AlterRetention) -> CatalogState:
    """Executes ALTER ... SET or RESET (RETAIN HISTORY)."""
    state = context.state
    found = altered_object(context, statement)
    if found is None:
        return state
    if not isinstance(found, Retained):
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'cannot set RETAIN HISTORY of {statement.kind} "{found.name}"',
            hint="Only tables, materialized views and indexes have a history.",
            position=statement.name.position,
        )
    privileges.require_owner(state, context.role, found)
    return state.with_item(replace(found, retain_ms=retained_ms(context, statement.retain)))
