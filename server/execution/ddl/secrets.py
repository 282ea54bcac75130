"""CREATE SECRET and ALTER SECRET. Nothing shows the value of a secret."""

from __future__ import annotations

from dataclasses import replace

from catalog.objects.secrets import NamedSecret, Secret
from catalog.state import CatalogState, NameTaken
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_item, unless_exists
from server.execution.names import qualified_name, schema_of
from server.session_state.context import Context
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.sources import AlterSecret, CreateSecret


def create(context: Context, statement: CreateSecret) -> CatalogState:
    """Executes CREATE SECRET."""
    schema, name = schema_of(context, statement.name)
    id, state = context.state.new_id()
    try:
        return state.with_item(NamedSecret(id, schema.id, name, Secret(statement.value)))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)


def alter(context: Context, statement: AlterSecret) -> CatalogState:
    """Executes ALTER SECRET ... AS. Sources whose connections use the secret continue with the new value."""
    state = context.state
    found = altered_item(context, ObjectKind.SECRET, statement.name, if_exists=statement.if_exists)
    if found is None:
        return state
    assert isinstance(found, NamedSecret)
    privileges.require_owner(state, context.role, found)
    return state.with_item(replace(found, value=Secret(statement.value)))


def show_create(context: Context, secret: NamedSecret) -> str:
    """The CREATE SECRET statement, without the value."""
    return f"CREATE SECRET {qualified_name(context, secret)} AS '********'"
