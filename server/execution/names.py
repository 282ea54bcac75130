"""Resolution of the names in statements against the catalog as the session sees it."""

from __future__ import annotations

from catalog.objects.catalog_object import Item
from catalog.objects.namespaces import TEMPORARY, Schema, is_temporary, temporary_schema_name
from catalog.objects.relations import Relation
from catalog.objects.types import Domain, EnumType
from catalog.roles import Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.parts import Name
from server.sql.scope import as_relation
from server.sql.sequence_names import with_names


def find_item(context: Context, name: Name) -> Item:
    """The item of that name. PgError 42P01; 42501 without USAGE on its schema."""
    item = context.state.resolve(name.parts, context.settings["database"], context.search_path)
    if item is None or isinstance(item, EnumType | Domain):
        raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{name}" does not exist', position=name.position)
    privileges.require_names(context.state, context.role, (item.id,))
    return item


def find_relation(context: Context, name: Name) -> Relation:
    """The relation of that name. As `find_item`; PgError 42809 for an item without columns."""
    return as_relation(find_item(context, name), name.position)


def qualified_name(context: Context, item: Item) -> str:
    """The item's name with database and schema, as SQL text."""
    return ".".join(map(quote_identifier, context.state.full_name(item)))


def with_item_names(context: Context, text: str) -> str:
    """A stored expression with the names of sequences and types in place of ids."""
    return with_names(text, lambda id: qualified_name(context, context.state.items[id]))


def schema_of(context: Context, name: Name) -> tuple[Schema, str]:
    """The schema in which `name` is to be created, and its last part. PgError 3D000, 3F000 or 42501."""
    *qualifier, last = name.parts
    if qualifier == [TEMPORARY]:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'schema "{TEMPORARY}" is not supported here',
            hint=f"Use CREATE TEMPORARY instead of the name {TEMPORARY}.",
            position=name.position,
        )
    schema = find_schema(context, tuple(qualifier), name.position) if qualifier else current_schema(context)
    if schema is None:
        raise PgError(
            SqlState.INVALID_SCHEMA_NAME,
            "no schema has been selected to create in",
            hint="Name one, or SET search_path to a schema of this database.",
        )
    if schema.database_id is None:
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied for schema "{schema.name}"')
    if is_temporary(schema):
        message = "cannot create relations in temporary schemas of other sessions"
        if schema == context.temporary_schema:
            message = f'schema "{schema.name}" has temporary objects only'
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, hint="Use CREATE TEMPORARY.", position=name.position)
    privileges.require_schema_usage(context.state, context.role, schema)
    privileges.require(context.state, context.role, schema.id, Privilege.CREATE)
    return schema, last


def temporary_schema_of(context: Context, name: Name) -> tuple[CatalogState, Schema, str]:
    """The schema in which `name`, temporary, is to be created, and its last part.

    The first temporary object of a session creates the schema: the catalog with it is returned. PgError 3D000, 42P16.
    """
    *qualifier, last = name.parts
    if qualifier not in ([], [TEMPORARY]):
        message = "cannot create temporary relation in non-temporary schema"
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, position=name.position)
    state, schema_name = context.state, temporary_schema_name(context.process_id)
    database = state.database_named(context.settings["database"])
    if database is None:
        message = f'database "{context.settings["database"]}" does not exist'
        raise PgError(SqlState.INVALID_CATALOG_NAME, message)
    schema = state.schema_named(database.id, schema_name)
    if schema is None:
        id, state = state.new_id()
        schema = Schema(id, database.id, schema_name)
        state = state.with_schema(schema)
    context.has_temporary = True
    return state, schema, last


def find_schema(context: Context, parts: tuple[str, ...], position: int | None = None) -> Schema:
    """The schema `[database.]schema`. PgError 3D000 or 3F000."""
    *qualifier, name = parts
    database_name = qualifier[0] if qualifier else context.settings["database"]
    database = context.state.database_named(database_name)
    if database is None and qualifier:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{database_name}" does not exist', position=position)
    schema = context.state.schema_named(database.id if database is not None else None, name)
    if schema is None:
        raise PgError(SqlState.INVALID_SCHEMA_NAME, f'schema "{name}" does not exist', position=position)
    return schema


def current_schema(context: Context) -> Schema | None:
    """The first schema of search_path that exists."""
    name = context.current_schema()
    database = context.state.database_named(context.settings["database"])
    return context.state.schema_named(database.id, name) if database is not None and name is not None else None
