"""CREATE, ALTER and DROP ROLE, role membership, and REASSIGN and DROP OWNED. Managing roles requires a superuser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from catalog.objects import Database, Item, ObjectId, Schema, Table
from catalog.roles import MATERIALIZE, Role
from catalog.state import CatalogState, InUse, NameTaken
from protocol.pgwire.datetime_input import parse_timestamptz
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authentication.verifiers import in_password_thread, stored_form
from server.authorization import privileges
from server.execution.ddl.named_objects import in_use
from server.session_state.context import Context
from server.session_state.transaction import Mode
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import (
    AlterRole,
    CreateRole,
    DropOwned,
    DropRoles,
    GrantRoles,
    ReassignOwned,
    RenameRole,
    RoleAttributes,
    RoleName,
    SpecialRole,
)
from server.sql.type_names import UserType


def role_named(context: Context, name: RoleName) -> Role:
    """The role that a statement names, or that CURRENT_USER or SESSION_USER denotes. PgError 42704."""
    match name.special:
        case SpecialRole.CURRENT_USER:
            id = context.role
        case SpecialRole.SESSION_USER:
            id = context.login
        case _:
            return privileges.find_role(context.state, name.name)
    role = context.state.roles.get(id)
    if role is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'role "{context.user}" does not exist')
    return role


def _require_superuser(context: Context, message: str, detail: str) -> None:
    if not privileges.is_superuser(context.state, context.role):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {message}", detail=detail)


_SUPERUSERS = "Only roles with the SUPERUSER attribute may {}."


def _set(context: Context, role: Role, evaluated: _Evaluated) -> Role:
    attributes = evaluated.statement.attributes
    given = {f.name: value for f in fields(attributes) if (value := getattr(attributes, f.name)) is not None}
    if given.pop("password", None) is not None:
        given["verifier"] = evaluated.verifier
    if (until := given.get("valid_until")) is not None:
        forever = until.strip().lower() in ("infinity", "+infinity")
        given["valid_until"] = None if forever else parse_timestamptz(until, context.settings["TimeZone"])
    return replace(role, **given)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """CREATE or ALTER ROLE with what is stored of its password. `verifier` is None without PASSWORD."""

    statement: CreateRole | AlterRole
    verifier: str | None


async def evaluate(context: Context, statement: CreateRole | AlterRole) -> _Evaluated:
    """Computes the verifier of the password in the thread for passwords. The password itself is not kept."""
    await context.enter(Mode.DEFINE, statement.tag)
    if isinstance(statement, CreateRole):
        _require_create(context)
    else:
        _require_alter(context, statement, role_named(context, statement.name))
    password = statement.attributes.password
    if password is None or password.text is None:
        return _Evaluated(statement, None)
    if not password.text:
        context.notice(Notice("empty string is not a valid password, clearing password"))
        return _Evaluated(statement, None)
    return _Evaluated(statement, await in_password_thread(stored_form, password.text))


def _require_create(context: Context) -> None:
    _require_superuser(context, "create role", _SUPERUSERS.format("create roles"))


def _require_alter(context: Context, statement: AlterRole, role: Role) -> None:
    """PgError 42501 unless the role is a superuser, or changes nothing but its own password."""
    given = {f.name for f in fields(RoleAttributes) if getattr(statement.attributes, f.name) is not None}
    if given != {"password"} or role.id != context.role:
        _require_superuser(context, "alter role", _SUPERUSERS.format(f'alter role "{role.name}"'))
    if given - {"password", "valid_until", "connection_limit"}:
        _check_is_not_materialize(role, "altered")


def _create(context: Context, evaluated: _Evaluated) -> CatalogState:
    statement = evaluated.statement
    assert isinstance(statement, CreateRole)
    _require_create(context)
    before = context.state
    id, state = before.new_id()
    groups = frozenset(role_named(context, group).id for group in statement.groups)
    role = _set(context, Role(id, statement.name.name, member_of=groups), evaluated)
    try:
        state = state.with_role(role)
    except NameTaken:
        message = f'role "{role.name}" already exists'
        if not statement.if_not_exists:
            raise PgError(SqlState.DUPLICATE_OBJECT, message) from None
        context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_OBJECT))
        return before
    for name in statement.members:
        state = _with_member(context, state, role, role_named(context, name))
    return state


def _alter(context: Context, evaluated: _Evaluated) -> CatalogState:
    statement = evaluated.statement
    assert isinstance(statement, AlterRole)
    role = role_named(context, statement.name)
    _require_alter(context, statement, role)
    return context.state.with_role(_set(context, role, evaluated))


def _rename(context: Context, statement: RenameRole) -> CatalogState:
    role, new = role_named(context, statement.name), statement.new_name.name
    for id, who in ((context.login, "session"), (context.role, "current")):
        if role.id == id:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{who} user cannot be renamed")
    _require_superuser(context, "rename role", _SUPERUSERS.format(f'rename role "{role.name}"'))
    _check_is_not_materialize(role, "renamed")
    try:
        return context.state.with_role(replace(role, name=new))
    except NameTaken:
        raise PgError(SqlState.DUPLICATE_OBJECT, f'role "{new}" already exists') from None


def _check_is_not_materialize(role: Role, done: str) -> None:
    if role.id == MATERIALIZE.id:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'role "{role.name}" cannot be {done}',
            detail="It is the superuser that always exists.",
            hint="CREATE ROLE ... SUPERUSER creates other superusers.",
        )


def _drop(context: Context, statement: DropRoles) -> CatalogState:
    _require_superuser(context, "drop role", _SUPERUSERS.format("drop roles"))
    state = context.state
    for name in statement.names:
        role = state.role_named(name.name)
        if role is None:
            message = f'role "{name.name}" does not exist'
            if not statement.if_exists:
                raise PgError(SqlState.UNDEFINED_OBJECT, message)
            context.notice(Notice(f"{message}, skipping"))
            continue
        for id, who in ((context.role, "current"), (context.login, "session")):
            if role.id == id:
                raise PgError(SqlState.OBJECT_IN_USE, f"{who} user cannot be dropped")
        if role.id == MATERIALIZE.id:
            message = f"cannot drop role {role.name} because it is required by the database system"
            raise PgError(SqlState.DEPENDENT_OBJECTS_STILL_EXIST, message)
        dependents = list(_dependents(context, state, role))
        if dependents:
            raise PgError(
                SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
                f'role "{role.name}" cannot be dropped because some objects depend on it',
                detail="\n".join(dependents),
                hint="Use REASSIGN OWNED or DROP OWNED to remove the dependencies.",
            )
        state = state.without_role(role.id)
    return state


def _dependents(context: Context, state: CatalogState, role: Role) -> Iterator[str]:
    for id, owner in state.owners.items():
        if owner == role.id:
            yield f"owner of {_described(context, state, id)}"
    for id, acl in state.privileges.items():
        if role.id in acl and state.owner(id) != role.id:
            yield f"privileges for {_described(context, state, id)}"
    for id, acls in state.column_privileges.items():
        names = [column.name for column in state.relation(id).columns]
        for position in sorted(acls):
            if role.id in acls[position] and state.owner(id) != role.id:
                yield f"privileges for column {names[position - 1]} of {_described(context, state, id)}"


def _described(context: Context, state: CatalogState, id: ObjectId) -> str:
    """An object's description for DETAIL; qualified if its bare name resolves to another object."""
    item = state.items.get(id)
    if item is None or state.resolve((item.name,), context.settings["database"], context.search_path) == item:
        return privileges.described(state, id)
    database, *rest = state.full_name(item)
    shown = rest if database == context.settings["database"] else (database, *rest)
    return f"{item.kind} {'.'.join(shown)}"


# -- membership ------------------------------------------------------------------------------------------------


def _grant(context: Context, statement: GrantRoles) -> CatalogState:
    state = context.state
    for group in [role_named(context, name) for name in statement.roles]:
        verb = "revoke" if statement.revoke else "grant"
        _require_superuser(context, f'{verb} role "{group.name}"', _SUPERUSERS.format(f"{verb} roles"))
        for name in statement.members:
            member = state.roles[role_named(context, name).id]
            if not statement.revoke:
                state = _with_member(context, state, group, member)
            elif group.id in member.member_of:
                state = state.with_role(replace(member, member_of=member.member_of - {group.id}))
            else:
                message = (
                    f'role "{member.name}" has not been granted membership in role "{group.name}" '
                    f'by role "{MATERIALIZE.name}"'
                )
                context.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.WARNING))
    return state


def _with_member(context: Context, state: CatalogState, group: Role, member: Role) -> CatalogState:
    _check_is_not_materialize(member, "made a member of a role")
    member = state.roles[member.id]
    if member.id in state.roles_of(group.id, inherited=False):
        message = f'role "{group.name}" is a member of role "{member.name}"'
        raise PgError(SqlState.INVALID_GRANT_OPERATION, message)
    if group.id in member.member_of:
        message = (
            f'role "{member.name}" has already been granted membership in role "{group.name}" '
            f'by role "{MATERIALIZE.name}"'
        )
        context.notice(Notice(message))
        return state
    return state.with_role(replace(member, member_of=member.member_of | {group.id}))


# -- owned objects ---------------------------------------------------------------------------------------------


def _reassign(context: Context, statement: ReassignOwned) -> CatalogState:
    state, to = context.state, role_named(context, statement.owner)
    for role in [role_named(context, name) for name in statement.roles]:
        _require_rights(context, role, "reassign objects", "reassign objects owned by it")
        _require_rights(context, to, "reassign objects", "reassign objects to it")
        for id in _owned_here(context, state, role):
            state = state.with_owner(id, to.id)
    return state


def _drop_owned(context: Context, statement: DropOwned) -> CatalogState:
    """Drops the roles' items and schemas in the session's database; revokes the roles' privileges on all objects."""
    state = context.state
    for role in [role_named(context, name) for name in statement.roles]:
        _require_rights(context, role, "drop objects", "drop objects owned by it")
        _check_is_not_materialize(role, "the owner of nothing")
        owned = sorted(_owned_here(context, state, role), key=lambda id: isinstance(state.items.get(id), UserType))
        tables = [item for id in owned if isinstance(item := state.items.get(id), Table)]
        state = state.without_references((table, key) for table in tables for key in table.foreign_keys)
        for id in owned:  # types after the tables
            try:
                if id in state.items:
                    state = state.without_item(id, cascade=statement.cascade)
                elif id in state.schemas:
                    state = state.without_schema(id, cascade=statement.cascade)
            except InUse as error:
                raise in_use(error) from None
        for id, acl in state.privileges.items():
            if role.id in acl and state.owner(id) != role.id:
                state = state.with_acl(id, {k: v for k, v in acl.items() if k != role.id})
        for id, acls in state.column_privileges.items():
            for position, acl in acls.items() if state.owner(id) != role.id else ():
                state = state.with_column_acl(id, position, {k: v for k, v in acl.items() if k != role.id})
    return state


def _require_rights(context: Context, role: Role, act: str, detail: str) -> None:
    if not privileges.has_rights_of(context.state, context.role, role.id):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            f"permission denied to {act}",
            detail=f'Only roles with privileges of role "{role.name}" may {detail}.',
        )


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
    CreateRole: _create,
    AlterRole: _alter,
    RenameRole: _rename,
    DropRoles: _drop,
    GrantRoles: _grant,
    ReassignOwned: _reassign,
    DropOwned: _drop_owned,
}
