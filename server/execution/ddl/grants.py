"""GRANT and REVOKE of privileges on tables, schemas, databases and the cluster (aclchk.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from catalog.objects import QUICKSTART, ObjectId, Relation, Sequence, applicable_privileges, with_article
from catalog.roles import COLUMN_PRIVILEGES, PUBLIC, Privilege
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
_OTHERS = ("trigger", "temporary", "temp", "execute", "connect", "set", "alter", "maintain")
"""PostgreSQL's privileges that Tidewire does not support."""


_PARTS_OF_SCHEMAS = {GrantKind.TABLES_IN_SCHEMA: "table", GrantKind.SEQUENCES_IN_SCHEMA: "sequence"}


def _grant(context: Context, statement: GrantPrivileges) -> CatalogState:
    state = context.state
    kind = _PARTS_OF_SCHEMAS.get(statement.kind, statement.kind.value)
    if statement.columns and statement.kind is not GrantKind.TABLE:
        raise PgError(SqlState.INVALID_GRANT_OPERATION, "column privileges are only valid for relations")
    wanted = _privileges(statement.privileges, kind)
    wanted_on_columns = [(_column_privileges(name), columns) for name, columns in statement.columns]
    grantees = [
        PUBLIC if name.special is SpecialRole.PUBLIC else role_named(context, name).id for name in statement.grantees
    ]
    for id in dict.fromkeys(id for name in statement.objects for id in _objects(context, statement.kind, name)):
        object = state.object(id)
        if statement.privileges is not None and statement.kind is GrantKind.TABLE:
            for privilege in sorted(wanted - object.privileges):
                _refuse_privilege(privilege, object.kind)
        positions = [(granted, _positions(state, id, columns)) for granted, columns in wanted_on_columns]
        if not privileges.owns(state, context.role, id):
            columns = [column for _, named in statement.columns for column in named]
            name = state.object(id).name
            refused = [f'"{name}"'] if wanted or statement.privileges is None else []
            refused += [f'column "{column.name}" of relation "{name}"' for column in columns]
            _refuse(context, state, id, refused, revoke=statement.revoke)
            continue
        acl = dict(state.acl(id))
        for grantee in grantees:
            acl[grantee] = _changed(statement, acl.get(grantee, frozenset()), wanted & object.privileges)
        if any(acl[grantee] != state.acl(id).get(grantee, frozenset()) for grantee in grantees):
            state = state.with_acl(id, acl)
        if statement.revoke and wanted:  # what is revoked on a relation is revoked on its columns, too
            positions.append((wanted, list(state.column_privileges.get(id, {}))))
        for granted, places in positions:
            for position in places:
                acl = dict(state.column_privileges.get(id, {}).get(position, {}))
                for grantee in grantees:
                    acl[grantee] = _changed(statement, acl.get(grantee, frozenset()), granted)
                state = state.with_column_acl(id, position, acl)
    return state


def _changed(
    statement: GrantPrivileges, old: frozenset[Privilege], wanted: frozenset[Privilege]
) -> frozenset[Privilege]:
    return old - wanted if statement.revoke else old | wanted


def _column_privileges(name: Ident | None) -> frozenset[Privilege]:
    """The privileges on columns that a name, or ALL, denotes. PgError 0LP01 for one that columns do not have."""
    if name is None:
        return COLUMN_PRIVILEGES
    others = {privilege.value.lower() for privilege in Privilege if privilege not in COLUMN_PRIVILEGES}
    if name.name in others or name.name in _OTHERS:
        message = f"invalid privilege type {name.name.upper()} for column"
        raise PgError(SqlState.INVALID_GRANT_OPERATION, message)
    return _privileges((name,), "table")


def _positions(state: CatalogState, id: ObjectId, columns: Iterable[Ident]) -> list[int]:
    """The positions of columns of a relation, counted from 1. PgError 42703."""
    relation = state.relation(id)
    positions = {column.name: position for position, column in enumerate(relation.columns, 1)}
    for column in columns:
        if column.name not in positions:
            message = f'column "{column.name}" of relation "{relation.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
    return [positions[column.name] for column in columns]


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
            hint = "Omit it: nothing needs it here."
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=ident.position)
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


def _refuse(context: Context, state: CatalogState, id: ObjectId, refused: Iterable[str], *, revoke: bool) -> None:
    """Only owners can grant. As in PostgreSQL, a role with any privilege on the object gets warnings, not an error.

    `refused`: descriptions of the object and its columns, one for each warning.
    """
    if not privileges.has_any(state, context.role, id):
        raise privileges.denied(state, id)
    act = "no privileges could be revoked" if revoke else "no privileges were granted"
    sqlstate = SqlState.PRIVILEGE_NOT_REVOKED if revoke else SqlState.PRIVILEGE_NOT_GRANTED
    for what in refused:
        context.notice(Notice(f"{act} for {what}", severity=Severity.WARNING, sqlstate=sqlstate))


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {GrantPrivileges: _grant}
