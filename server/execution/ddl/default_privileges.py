"""ALTER DEFAULT PRIVILEGES (aclchk.c). `CatalogState.settled` gives new objects these privileges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from catalog.acls import Acl, built_in_acl, in_order, without_role
from catalog.ids import ObjectId
from catalog.objects.namespaces import Schema
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.types import Domain
from catalog.roles import DefaultAclKey, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.acl_changes import acl_change, named_privilege
from server.execution.ddl.named_roles import role_named
from server.execution.names import find_schema
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import AlterDefaultPrivileges, DefaultKind

_KINDS = {
    DefaultKind.TABLES: ("r", Table.privileges, frozenset[Privilege](), "relation"),
    DefaultKind.SEQUENCES: ("S", Sequence.privileges, frozenset[Privilege](), "sequence"),
    DefaultKind.TYPES: ("T", Domain.privileges, Domain.privileges, "type"),
    DefaultKind.SCHEMAS: ("n", Schema.privileges, frozenset[Privilege](), "schema"),
}
"""For each kind its defaclobjtype, the meaning of ALL, what PUBLIC has without an entry, and its name in messages."""
_BY_LETTER = {letter: kind for kind, (letter, *_) in _KINDS.items()}


def _alter(context: Context, statement: AlterDefaultPrivileges) -> CatalogState:
    state = context.state
    letter, all_of, _, name = _KINDS[statement.kind]
    change = acl_change(context, statement)
    wanted = all_of
    if statement.privileges is not None:
        wanted = frozenset(named_privilege(ident, {}) for ident in statement.privileges)
        for privilege in sorted(wanted - all_of):
            raise PgError(SqlState.INVALID_GRANT_OPERATION, f"invalid privilege type {privilege} for {name}")
    roles = [role_named(context, role).id for role in statement.roles] or [context.role]
    for role in roles:
        if not privileges.has_rights_of(state, context.role, role):
            raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, "permission denied to change default privileges")
    schemas = [find_schema(context, schema.parts, schema.position) for schema in statement.schemas]
    if schemas and statement.kind is DefaultKind.SCHEMAS:
        message = "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS"
        raise PgError(SqlState.INVALID_GRANT_OPERATION, message)
    database = state.database_named(context.settings["database"])
    if database is None:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{context.settings["database"]}" does not exist')
    places: list[tuple[ObjectId, ObjectId | None]] = [
        (schema.database_id or database.id, schema.id) for schema in schemas
    ]
    changed: dict[DefaultAclKey, Acl | None] = {}
    for role in dict.fromkeys(roles):
        for of, schema_id in places or [(database.id, None)]:
            checkpoint()
            key = DefaultAclKey(role, of, schema_id, letter)
            old = state.default_acls.get(key, built_in_default(key))
            acl = change.applied(state, old, wanted, role, role, described(state, key))
            changed[key] = stored(key, acl)
    return state.with_default_acls(changed)


def built_in_default(key: DefaultAclKey) -> Acl:
    """The privileges without an entry: none for a schema, whose privileges are added to those of the database."""
    _, own, public, _ = _KINDS[_BY_LETTER[key.kind]]
    return built_in_acl(key.role, own, public) if key.schema is None else ()


def stored(key: DefaultAclKey, acl: Acl) -> Acl | None:
    """The entry for these privileges; None if they are those without an entry."""
    return None if in_order(acl) == in_order(built_in_default(key)) else in_order(acl)


def described(state: CatalogState, key: DefaultAclKey) -> str:
    """An entry as messages name it (objectaddress.c)."""
    *_, name = _KINDS[_BY_LETTER[key.kind]]
    where = "" if key.schema is None else f" in schema {state.schemas[key.schema].name}"
    return f"default privileges on new {name}s belonging to role {state.roles[key.role].name}{where}"


def dependents(state: CatalogState, role: ObjectId) -> Iterator[str]:
    """The entries that a role has made or that name it, for DETAIL."""
    for key, acl in state.default_acls.items():
        if key.role == role:
            yield f"owner of {described(state, key)}"
        elif any(role in (item.grantee, item.grantor) for item in acl):
            yield f"privileges for {described(state, key)}"


def without(state: CatalogState, role: ObjectId, database: ObjectId | None) -> CatalogState:
    """The state without the entries of a role in a database, and without the role in those of others."""
    changed: dict[DefaultAclKey, Acl | None] = {}
    for key, acl in state.default_acls.items():
        if key.role == role:
            if key.database == database:
                changed[key] = None
        elif any(role in (item.grantee, item.grantor) for item in acl):
            changed[key] = stored(key, without_role(acl, role, key.role, state.has_rights_of))
    return state.with_default_acls(changed) if changed else state


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {AlterDefaultPrivileges: _alter}
