"""ALTER of databases, schemas and items: RENAME TO, OWNER TO, SET SCHEMA, and SET or RESET (RETAIN HISTORY)."""

from __future__ import annotations

from dataclasses import replace

from catalog.objects.catalog_object import Item
from catalog.objects.indexes import Index
from catalog.objects.namespaces import TEMPORARY, Database, Schema, is_temporary
from catalog.objects.relations import Relation, Retained
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.objects.views import MaterializedView, View
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.constraints import with_renamed_constraint
from server.execution.ddl.databases import require_create_db
from server.execution.ddl.keys import is_taken, key_owner
from server.execution.ddl.named_objects import altered_object, find_object, name_taken
from server.execution.ddl.named_roles import role_named
from server.execution.ddl.retention import retained_ms
from server.execution.names import find_item, find_schema
from server.execution.user_types import with_type
from server.session_state.context import Context
from server.sql.grammar.statements.objects import AlterOwner, AlterRename, AlterRetention, AlterSchema, ObjectKind
from server.sql.type_names import UserType


def rename(context: Context, statement: AlterRename) -> CatalogState:
    """Executes ALTER ... RENAME TO. As in PostgreSQL, ALTER TABLE also renames views, indexes and sequences.

    The index of a key is no item: a new name is that of the constraint, as in PostgreSQL.
    """
    state, new = context.state, statement.new_name.name
    if statement.kind is ObjectKind.TABLE:
        named = find_object(context, state, statement.kind, statement.name)
        if isinstance(named, (View, MaterializedView, Index, Sequence)):
            statement = replace(statement, kind=ObjectKind(named.kind))
    if statement.kind in (ObjectKind.TABLE, ObjectKind.INDEX) and (table := key_owner(context, statement.name)):
        return with_renamed_constraint(context, table, statement.name.parts[-1], new)
    found = altered_object(context, statement)
    if found is None:
        return state
    privileges.require_owner(state, context.role, found)
    try:
        match found:
            case Database():
                require_create_db(context, "rename")
                _refuse_own_name(found, new)
                return state.with_database(replace(found, name=new))
            case Schema():
                assert found.database_id is not None
                privileges.require(state, context.role, found.database_id, Privilege.CREATE)
                _refuse_own_name(found, new)
                state = state.with_schema(replace(found, name=new))
                for item in [item for item in state.items_in(found.id) if isinstance(item, UserType)]:
                    state = with_type(state, item)  # messages name the schema
                return state
            case EnumType() | Domain():
                privileges.require(state, context.role, found.schema_id, Privilege.CREATE)
                _refuse_own_name(found, new)
                return with_type(state, replace(found, name=new))
            case Item():
                privileges.require(state, context.role, found.schema_id, Privilege.CREATE)
                _refuse_own_name(found, new)
                return state.with_item(replace(found, name=new))
    except NameTaken as error:
        raise name_taken(error, statement.new_name.position) from None


def _refuse_own_name(found: Database | Schema | Item, new: str) -> None:
    """NameTaken if an object would get the name that it has, as in PostgreSQL."""
    if found.name == new:
        raise NameTaken(found.kind, new)


def set_schema(context: Context, statement: AlterSchema) -> CatalogState:
    """Executes ALTER ... SET SCHEMA. The indexes of a table and the sequences of its columns move with it. PgError."""
    state = context.state
    if not statement.if_exists:
        find_item(context, statement.name)  # PostgreSQL's error names a relation
    if statement.kind is ObjectKind.TABLE:
        named = find_object(context, state, statement.kind, statement.name)
        if isinstance(named, (View, MaterializedView, Sequence)):
            statement = replace(statement, kind=ObjectKind(named.kind))
    found = altered_object(context, statement)
    if found is None:
        return state
    assert isinstance(found, Item)
    privileges.require_owner(state, context.role, found)
    if statement.schema.name == TEMPORARY:
        raise _between_temporary()
    schema = find_schema(context, (statement.schema.name,), statement.schema.position)
    if schema.database_id is None:
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied for schema "{schema.name}"')
    privileges.require(state, context.role, schema.id, Privilege.CREATE)
    if is_temporary(schema) or is_temporary(state.schemas[found.schema_id]):
        raise _between_temporary()
    if isinstance(found, Sequence) and found.owner_table is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "cannot move an owned sequence into another schema",
            detail=f'Sequence "{found.name}" is linked to table "{state.items[found.owner_table].name}".',
        )
    if schema.id == found.schema_id:
        return state
    owned = [item for item in state.items_of(Sequence) if item.owner_table == found.id]
    moved: list[Item] = [found, *state.indexes_on(found.id), *owned]
    names = [item.name for item in moved] + [key.name for key in (found.keys if isinstance(found, Table) else ())]
    for name in names:
        if is_taken(state, schema.id, name):
            message = f'relation "{name}" already exists in schema "{schema.name}"'
            raise PgError(SqlState.DUPLICATE_TABLE, message)
    return state.with_items(replace(item, schema_id=schema.id) for item in moved)


def _between_temporary() -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, "cannot move objects into or out of temporary schemas")


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
    is_changed = state.owner(found.id) != role.id
    if is_changed or isinstance(found, Relation):  # PostgreSQL checks other objects only if their owner changes
        privileges.require_owner(state, context.role, found)
    if not is_changed:
        return state
    if not privileges.may_set_role(state, context.role, role.id):
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
