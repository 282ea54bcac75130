"""REASSIGN OWNED and DROP OWNED, and what depends on a role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from catalog.acls import Acl, without_role
from catalog.drops import InUse, without_item, without_schema
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.namespaces import Database, Schema
from catalog.objects.tables import Table
from catalog.references import without_references
from catalog.roles import MATERIALIZE, Role
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl import default_privileges
from server.execution.ddl.memberships import without_grants_of
from server.execution.ddl.named_objects import in_use
from server.execution.ddl.named_roles import role_named, roles_named
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import DropOwned, ReassignOwned
from server.sql.type_names import UserType


def dependents(context: Context, state: CatalogState, role: Role) -> Iterator[str]:
    """What depends on the role, for DETAIL."""
    for id, owner in state.owners.items():
        if owner == role.id:
            yield f"owner of {_described(context, state, id)}"
    for id, acl in state.privileges.items():
        if _names(acl, role) and state.owner(id) != role.id:
            yield f"privileges for {_described(context, state, id)}"
    for id, acls in state.column_privileges.items():
        names = [column.name for column in state.relation(id).columns]
        for position in sorted(acls):
            if _names(acls[position], role) and state.owner(id) != role.id:
                yield f"privileges for column {names[position - 1]} of {_described(context, state, id)}"
    yield from default_privileges.dependents(state, role.id)
    for key in state.memberships:
        if key.grantor == role.id:
            member, of = state.roles[key.member], state.roles[key.role]
            yield f"privileges for membership of role {member.name} in role {of.name}"


def _names(acl: Acl, role: Role) -> bool:
    return any(role.id in (item.grantee, item.grantor) for item in acl)


def _described(context: Context, state: CatalogState, id: ObjectId) -> str:
    """An object's description for DETAIL; qualified if its bare name resolves to another object."""
    item = state.items.get(id)
    if item is None or state.resolve((item.name,), context.settings["database"], context.search_path) == item:
        return privileges.described(state, id)
    database, *rest = state.full_name(item)
    shown = rest if database == context.settings["database"] else (database, *rest)
    kind, _, _ = privileges.described(state, id).rpartition(f" {item.name}")
    return f"{kind} {'.'.join(shown)}"


def _reassign(context: Context, statement: ReassignOwned) -> CatalogState:
    state, to = context.state, role_named(context, statement.owner)
    roles = roles_named(context, statement.roles)
    for role in roles:
        _require_rights(context, role, "reassign objects", "reassign objects owned by it")
    _require_rights(context, to, "reassign objects", "reassign objects to it")
    for role in roles:
        _refuse_built_in(role, "reassign ownership of")
        for id in _owned_here(context, state, role):
            state = state.with_owner(id, to.id)
    return state


def _drop_owned(context: Context, statement: DropOwned) -> CatalogState:
    """Drops the roles' items and schemas in the session's database.

    Revokes what the roles were granted on all objects, with what they have granted to others.
    """
    state = context.state
    for role in roles_named(context, statement.roles):
        _require_rights(context, role, "drop objects", "drop objects owned by it")
        _refuse_built_in(role, "drop")
        owned = sorted(_owned_here(context, state, role), key=lambda id: isinstance(state.items.get(id), UserType))
        tables = [item for id in owned if isinstance(item := state.items.get(id), Table)]
        references = [(table, key) for table in tables for key in table.foreign_keys]
        state = without_references(state, references)
        for id in owned:  # types after the tables
            checkpoint()
            try:
                if id in state.items:
                    state = without_item(state, id, cascade=statement.cascade)
                elif id in state.schemas:
                    state = without_schema(state, id, cascade=statement.cascade)
            except InUse as error:
                raise in_use(error) from None
        state = _without_privileges(state, role)
        database = state.database_named(context.settings["database"])
        state = default_privileges.without(state, role.id, None if database is None else database.id)
        state = without_grants_of(state, role.id)
    return state


def _without_privileges(state: CatalogState, role: Role) -> CatalogState:
    """The state without what the role was granted, and has granted, on the objects of others."""

    def left(id: ObjectId, acl: Acl) -> Acl:
        checkpoint()
        return without_role(acl, role.id, state.owner(id), state.has_rights_of)

    acls = {
        id: left(id, acl) for id, acl in state.privileges.items() if _names(acl, role) and state.owner(id) != role.id
    }
    column_acls = {
        id: {position: left(id, acl) for position, acl in columns.items()}
        for id, columns in state.column_privileges.items()
        if any(_names(acl, role) for acl in columns.values()) and state.owner(id) != role.id
    }
    return state.with_acls(acls, column_acls)


def _require_rights(context: Context, role: Role, act: str, detail: str) -> None:
    if not privileges.has_rights_of(context.state, context.role, role.id):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            f"permission denied to {act}",
            detail=f'Only roles with privileges of role "{role.name}" may {detail}.',
        )


def _refuse_built_in(role: Role, act: str) -> None:
    """PgError 2BP01 for the role that owns the built-in objects."""
    if role.id == MATERIALIZE.id:
        message = f"cannot {act} objects owned by role {role.name} because they are required by the database system"
        raise PgError(SqlState.DEPENDENT_OBJECTS_STILL_EXIST, message)


def _owned_here(context: Context, state: CatalogState, role: Role) -> list[ObjectId]:
    """Ids of the objects that a role owns: in the session's database, items before schemas; then databases."""
    database = state.database_named(context.settings["database"])
    here = database.id if database is not None else None
    objects: tuple[Item | Schema | Database, ...] = (
        *(i for i in state.items.values() if i.part_of is None and state.schemas[i.schema_id].database_id == here),
        *(s for s in state.schemas.values() if s.database_id == here),
        *state.databases.values(),
    )
    return [o.id for o in objects if state.owner(o.id) == role.id]


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {
    ReassignOwned: _reassign,
    DropOwned: _drop_owned,
}
