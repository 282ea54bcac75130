"""GRANT and REVOKE of privileges on relations, columns, schemas and other objects (aclchk.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from catalog.acls import NONE, Acl, Privileges
from catalog.ids import ObjectId
from catalog.objects.clusters import QUICKSTART
from catalog.objects.kinds import applicable_privileges, with_article
from catalog.objects.relations import Relation
from catalog.objects.sequences import Sequence
from catalog.objects.types import Domain
from catalog.roles import COLUMN_PRIVILEGES, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.execution.ddl.acl_changes import AclChange, acl_change, is_unsupported, named_privilege
from server.execution.ddl.named_objects import find_object, named_item, refuse_missing, refuse_system_table
from server.execution.ddl.named_roles import role_named
from server.execution.names import find_item, find_schema
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Definition, Ident, Name
from server.sql.grammar.statements.roles import GrantKind, GrantPrivileges

_CONNECT = {"connect": Privilege.USAGE}  # PostgreSQL's name of this privilege on databases

ENTRIES_MAX = 100_000
"""Of access control lists, which a statement adds. The commits of others wait while they are written, for about 4 s for
a million, which take 1 GB of memory."""
ALL_ENTRIES_MAX = 500_000  # of all objects, beyond which GRANT adds none

_PARTS_OF_SCHEMAS = {GrantKind.TABLES_IN_SCHEMA: "table", GrantKind.SEQUENCES_IN_SCHEMA: "sequence"}


def _grant(context: Context, statement: GrantPrivileges) -> CatalogState:
    state = context.state
    kind = _PARTS_OF_SCHEMAS.get(statement.kind, statement.kind.value)
    if statement.granted_by is not None and role_named(context, statement.granted_by).id != context.role:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "grantor must be current user")
    if statement.columns and statement.kind is not GrantKind.TABLE:
        raise PgError(SqlState.INVALID_GRANT_OPERATION, "column privileges are only valid for relations")
    wanted = _privileges(statement.privileges, kind)
    wanted_on_columns = [(_column_privileges(name), columns) for name, columns in statement.columns]
    change = acl_change(context, statement)
    acls: dict[ObjectId, Acl] = {}
    column_acls: dict[ObjectId, dict[int, Acl]] = {}
    entries = 0  # that the statement adds
    for id in dict.fromkeys(id for name in statement.objects for id in _objects(context, statement.kind, name)):
        checkpoint()
        object = state.object(id)
        if statement.privileges is not None and statement.kind is GrantKind.TABLE:
            for privilege in sorted(wanted - object.privileges):
                _refuse_privilege(privilege, object.kind)
        own = wanted & object.privileges
        by_column: dict[int, Privileges] = {}
        if statement.revoke and isinstance(object, Relation) and own & COLUMN_PRIVILEGES:
            # what is revoked on a relation is revoked on its columns, too
            by_column = dict.fromkeys(range(1, len(object.columns) + 1), own & COLUMN_PRIVILEGES)
        for granted, columns in wanted_on_columns:
            for position in _positions(state, id, columns):
                by_column[position] = by_column.get(position, NONE) | granted
        if own:
            acls[id] = _changed(context, change, id, own)
            entries += len(acls[id]) - len(state.acl(id))
        if by_column:
            column_acls[id] = _changed_columns(context, change, id, by_column)
            before = state.column_privileges.get(id, {})
            entries += sum(map(len, column_acls[id].values())) - sum(map(len, before.values()))
        if entries > ENTRIES_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "too many privileges in a statement",
                detail=f"A statement can add at most {ENTRIES_MAX} entries to the access control lists of objects.",
                hint="Grant the privileges to a group, and make the roles members of it.",
            )
    if entries > 0 and entries + _entries(state) > ALL_ENTRIES_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many privileges",
            detail=f"The access control lists of all objects can have at most {ALL_ENTRIES_MAX} entries together.",
            hint="Grant the privileges to a group, and make the roles members of it.",
        )
    return state.with_acls(acls, column_acls)


def _entries(state: CatalogState) -> int:
    """Of the access control lists of all objects and columns."""
    of_columns = (acl for acls in state.column_privileges.values() for acl in acls.values())
    return sum(map(len, state.privileges.values())) + sum(map(len, of_columns))


def _changed(context: Context, change: AclChange, id: ObjectId, wanted: Privileges) -> Acl:
    """The privileges on an object after the change. Sends warnings for what the role may not grant."""
    state = context.state
    acl, owner = state.acl(id), state.owner(id)
    grantor, options = privileges.best_grantor(state, context.role, acl, owner, wanted)
    if not options and not privileges.is_grantee(state, grantor, acl):
        raise privileges.denied(state, id)
    _warn(context, change, f'"{state.object(id).name}"', wanted, options, is_all=change.is_all)
    return change.applied(state, acl, wanted & options, grantor, owner, privileges.described(state, id))


def _changed_columns(
    context: Context, change: AclChange, id: ObjectId, by_column: dict[int, Privileges]
) -> dict[int, Acl]:
    """The privileges on all columns of a relation after the change of those at some positions."""
    state = context.state
    relation, owner, table_acl = state.relation(id), state.owner(id), state.acl(id)
    acls = dict(state.column_privileges.get(id, {}))
    by_table: dict[Privileges, tuple[ObjectId, Privileges]] = {}
    for position, wanted in sorted(by_column.items()):
        checkpoint()
        acl = acls.get(position, ())
        if acl:
            grantor, options = privileges.best_grantor(state, context.role, (*table_acl, *acl), owner, wanted)
        else:
            if wanted not in by_table:
                by_table[wanted] = privileges.best_grantor(state, context.role, table_acl, owner, wanted)
            grantor, options = by_table[wanted]
        what = f'column "{relation.columns[position - 1].name}" of relation "{relation.name}"'
        if not options and not privileges.is_grantee(state, grantor, (*table_acl, *acl)):
            raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied for {what}")
        _warn(context, change, what, wanted, options, is_all=wanted == COLUMN_PRIVILEGES)
        if acl or not change.revoke:
            acls[position] = change.applied(state, acl, wanted & options, grantor, owner, what)
    return acls


def _warn(
    context: Context, change: AclChange, what: str, wanted: Privileges, options: Privileges, *, is_all: bool
) -> None:
    """Sends a warning if the role may not grant or revoke all of the privileges."""
    if wanted <= options or (is_all and wanted & options):
        return
    if change.revoke:
        act, sqlstate = "privileges could be revoked", SqlState.PRIVILEGE_NOT_REVOKED
    else:
        act, sqlstate = "privileges were granted", SqlState.PRIVILEGE_NOT_GRANTED
    number = "not all" if wanted & options else "no"
    context.notice(Notice(f"{number} {act} for {what}", severity=Severity.WARNING, sqlstate=sqlstate))


def _column_privileges(name: Ident | None) -> Privileges:
    """The privileges on columns that a name, or ALL, denotes. PgError 0LP01 for one that columns do not have."""
    if name is None:
        return COLUMN_PRIVILEGES
    others = {privilege.value.lower() for privilege in Privilege if privilege not in COLUMN_PRIVILEGES}
    if name.name in others or is_unsupported(name.name):
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


def _privileges(names: tuple[Ident, ...] | None, kind: str) -> Privileges:
    """PgError 0LP01 for a privilege that does not apply to this kind of object, 0A000 for an unsupported one."""
    all_of = applicable_privileges(kind)
    if names is None:
        return all_of
    wanted = set()
    for ident in names:
        privilege = named_privilege(ident, _CONNECT if kind == "database" else {})
        is_of_sequence = kind == "table" and privilege is Privilege.USAGE  # the name may be that of a sequence
        if privilege not in all_of and not is_of_sequence:
            _refuse_privilege(privilege, "relation" if kind == "table" else kind)
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
            privileges.require_schema_usage(state, context.role, state.schemas[schema_id])
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
        case GrantKind.TYPE | GrantKind.DOMAIN:
            found = find_object(context, state, ObjectKind.TYPE, name)
            if found is None:
                refuse_missing(context, ObjectKind.TYPE, name, if_exists=False)
            assert found is not None
            if kind is GrantKind.DOMAIN and not isinstance(found, Domain):
                raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{name}" is not a domain')
            return [found.id]


def _schema(context: Context, name: Name) -> ObjectId:
    schema = find_schema(context, name.parts)
    if schema.database_id is None:
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{schema.name}" is a system schema')
    return schema.id


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {GrantPrivileges: _grant}
