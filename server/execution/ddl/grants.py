"""GRANT and REVOKE of privileges on tables, schemas, databases and the cluster (aclchk.c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catalog.objects import QUICKSTART, ObjectId, Relation, Sequence, applicable_privileges, with_article
from catalog.roles import PUBLIC, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import named_item, refuse_system_table
from server.execution.ddl.roles import role_named
from server.execution.names import find_item, find_schema
from server.session_state.context import Context
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Definition, Ident, Name
from server.sql.grammar.statements.roles import GrantKind, GrantPrivileges, SpecialRole

_CONNECT = {"connect": Privilege.USAGE}  # PostgreSQL's name of this privilege on databases
_OTHERS = ("references", "trigger", "temporary", "temp", "execute", "connect", "set", "alter", "maintain")
"""PostgreSQL's privileges that Tidewire does not support."""


_PARTS_OF_SCHEMAS = {GrantKind.TABLES_IN_SCHEMA: "table", GrantKind.SEQUENCES_IN_SCHEMA: "sequence"}


def _grant(context: Context, statement: GrantPrivileges) -> CatalogState:
    state = context.state
    kind = _PARTS_OF_SCHEMAS.get(statement.kind, statement.kind.value)
    wanted = _privileges(statement.privileges, kind)
    grantees = [
        PUBLIC if name.special is SpecialRole.PUBLIC else role_named(context, name).id for name in statement.grantees
    ]
    for id in dict.fromkeys(id for name in statement.objects for id in _objects(context, statement.kind, name)):
        object = state.object(id)
        if statement.privileges is not None and statement.kind is GrantKind.TABLE:
            for privilege in sorted(wanted - object.privileges):
                _refuse_privilege(privilege, object.kind)
        if not privileges.owns(state, context.role, id):
            _refuse(context, state, id, revoke=statement.revoke)
            continue
        acl = dict(state.acl(id))
        for grantee in grantees:
            old = acl.get(grantee, frozenset())
            acl[grantee] = old - wanted if statement.revoke else old | wanted & object.privileges
        if any(acl[grantee] != state.acl(id).get(grantee, frozenset()) for grantee in grantees):
            state = state.with_acl(id, acl)
    return state


def _privileges(names: tuple[Ident, ...] | None, kind: str) -> frozenset[Privilege]:
    """PgError 0LP01 for a privilege that does not apply to this kind of object, 0A000 for an unsupported one."""
    all_of = applicable_privileges(kind)
    if names is None:
        return all_of
    known = {privilege.value.lower(): privilege for privilege in Privilege} | (_CONNECT if kind == "database" else {})
    wanted = set()
    for ident in names:
        privilege = known.get(ident.name)
        if privilege is None and ident.name not in _OTHERS:
            message = f'unrecognized privilege type "{ident.name}"'
            raise PgError(SqlState.SYNTAX_ERROR, message)
        if privilege is None:
            message = f"privilege {ident.name.upper()} is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=ident.position)
        if privilege not in all_of:
            # in PostgreSQL the relation could be a sequence, which has USAGE
            on = "relation" if kind == "table" and privilege is not Privilege.USAGE else kind
            _refuse_privilege(privilege, on)
        wanted.add(privilege)
    return frozenset(wanted)


def _refuse_privilege(privilege: Privilege, kind: str) -> None:
    raise PgError(SqlState.INVALID_GRANT_OPERATION, f"invalid privilege type {privilege} for {kind}")


def _objects(context: Context, kind: GrantKind, name: Name) -> list[ObjectId]:
    state = context.state
    match kind:
        case GrantKind.TABLE:
            item = find_item(context, name)
            if not isinstance(item, Relation):
                raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{item.name}" is {with_article(item.kind)}')
            refuse_system_table(item)
            return [item.id]
        case GrantKind.SEQUENCE:
            return [named_item(context, ObjectKind.SEQUENCE, name).id]
        case GrantKind.TABLES_IN_SCHEMA | GrantKind.SEQUENCES_IN_SCHEMA:
            schema_id, sequences = _schema(context, name), kind is GrantKind.SEQUENCES_IN_SCHEMA
            relations = (i for i in state.items_in(schema_id) if isinstance(i, Relation))
            return [i.id for i in relations if isinstance(i, Sequence) is sequences]
        case GrantKind.SCHEMA:
            return [_schema(context, name)]
        case GrantKind.DATABASE:
            database = state.database_named(name.parts[0])
            if database is None:
                raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{name}" does not exist')
            return [database.id]
        case GrantKind.CLUSTER:
            if name.parts[0] != QUICKSTART.name:
                raise PgError(SqlState.UNDEFINED_OBJECT, f'cluster "{name}" does not exist')
            return [QUICKSTART.id]
        case GrantKind.CONNECTION | GrantKind.SECRET:
            return [named_item(context, ObjectKind(kind.value), name).id]


def _schema(context: Context, name: Name) -> ObjectId:
    schema = find_schema(context, name.parts)
    if schema.database_id is None:
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{schema.name}" is a system schema')
    return schema.id


def _refuse(context: Context, state: CatalogState, id: ObjectId, *, revoke: bool) -> None:
    """Only owners can grant. As in PostgreSQL, a role with any privilege on the object gets a warning, not an error."""
    if not any(privileges.has(state, context.role, id, privilege) for privilege in Privilege):
        raise privileges.denied(state, id)
    name = state.object(id).name
    if revoke:
        warning = Notice(
            f'no privileges could be revoked for "{name}"',
            severity=Severity.WARNING,
            sqlstate=SqlState.PRIVILEGE_NOT_REVOKED,
        )
    else:
        warning = Notice(
            f'no privileges were granted for "{name}"',
            severity=Severity.WARNING,
            sqlstate=SqlState.PRIVILEGE_NOT_GRANTED,
        )
    context.notice(warning)


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {GrantPrivileges: _grant}
