"""CREATE, ALTER and DROP ROLE.

Managing roles requires CREATEROLE, and ADMIN OPTION on the role, as in PostgreSQL 16.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, fields, replace
from typing import Any

from catalog.roles import MATERIALIZE, Role
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.datetime_input import parse_timestamptz
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.authentication.verifiers import ITERATIONS, in_password_thread, stored_form
from server.authorization import privileges
from server.execution.ddl.memberships import for_new_role
from server.execution.ddl.named_roles import check_is_not_materialize, role_named
from server.execution.ddl.owned_objects import dependents
from server.session_state.context import Context
from server.session_state.transaction import Mode
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import AlterRole, CreateRole, DropRoles, RenameRole, RoleAttributes


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
        _require_create(context, statement.attributes)
    else:
        _require_alter(context, statement, role_named(context, statement.name))
    password = statement.attributes.password
    if password is None or password.text is None:
        return _Evaluated(statement, None)
    if not password.text:
        context.notice(Notice("empty string is not a valid password, clearing password"))
        return _Evaluated(statement, None)
    return _Evaluated(statement, await in_password_thread(ITERATIONS, stored_form, password.text))


def _refused(act: str, detail: str) -> PgError:
    return PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {act}", detail=detail)


def _may_create_roles(context: Context) -> bool:
    own = context.state.roles.get(context.role)
    return own is not None and (own.superuser or own.create_role)


def _may_manage(context: Context, role: Role) -> bool:
    """Whether the current role has CREATEROLE, and ADMIN OPTION on the role."""
    return _may_create_roles(context) and privileges.is_admin_of(context.state, context.role, role.id)


def _only_admins(verb: str, role: Role) -> str:
    return f'Only roles with the CREATEROLE attribute and the ADMIN option on role "{role.name}" may {verb} this role.'


def _require_manage(context: Context, verb: str, role: Role) -> None:
    """PgError 42501 unless the current role may rename or drop (`verb`) the role."""
    if role.superuser and not privileges.is_superuser(context.state, context.role):
        detail = f"Only roles with the SUPERUSER attribute may {verb} roles with the SUPERUSER attribute."
        raise _refused(f"{verb} role", detail)
    if not _may_manage(context, role):
        raise _refused(f"{verb} role", _only_admins(verb, role))


def _require_create(context: Context, attributes: RoleAttributes) -> None:
    """PgError 42501 unless the current role may create a role with these attributes."""
    own = context.state.roles.get(context.role)
    if own is not None and own.superuser:
        return
    if own is None or not own.create_role:
        raise _refused("create role", "Only roles with the CREATEROLE attribute may create roles.")
    for attribute, is_set, has in (
        ("SUPERUSER", attributes.superuser, False),
        ("CREATEDB", attributes.create_db, own.create_db),
    ):
        if is_set and not has:
            detail = f"Only roles with the {attribute} attribute may create roles with the {attribute} attribute."
            raise _refused("create role", detail)


def _require_alter(context: Context, statement: AlterRole, role: Role) -> None:
    """PgError 42501 unless the current role may change these attributes of the role."""
    given = {f.name for f in fields(RoleAttributes) if getattr(statement.attributes, f.name) is not None}
    if (detail := _refusal_to_alter(context, given, role)) is not None:
        raise _refused("alter role", detail)
    if given - {"password", "valid_until", "connection_limit"}:
        check_is_not_materialize(role, "altered")


def _refusal_to_alter(context: Context, given: Set[str], role: Role) -> str | None:
    """The DETAIL of the error if the current role may not change these attributes of the role; None if it may."""
    own = context.state.roles.get(context.role)
    if own is not None and own.superuser:
        return None
    if role.superuser:
        return "Only roles with the SUPERUSER attribute may alter roles with the SUPERUSER attribute."
    if "superuser" in given:
        return "Only roles with the SUPERUSER attribute may change the SUPERUSER attribute."
    if not _may_manage(context, role):
        if given - {"password"}:
            return _only_admins("alter", role)
        if given and role.id != context.role:
            return (
                "To change another role's password, the current user must have the CREATEROLE attribute "
                "and the ADMIN option on the role."
            )
        return None
    if "create_db" in given and not (own is not None and own.create_db):
        return "Only roles with the CREATEDB attribute may change the CREATEDB attribute."
    return None


def _create(context: Context, evaluated: _Evaluated) -> CatalogState:
    statement = evaluated.statement
    assert isinstance(statement, CreateRole)
    _require_create(context, statement.attributes)
    before = context.state
    id, state = before.new_id()
    role = _set(context, Role(id, statement.name.name), evaluated)
    try:
        state = state.with_role(role)
    except NameTaken:
        message = f'role "{role.name}" already exists'
        if not statement.if_not_exists:
            raise PgError(SqlState.DUPLICATE_OBJECT, message) from None
        context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_OBJECT))
        return before
    members = [role_named(context, name) for name in statement.members]
    admins = [role_named(context, name) for name in statement.admins]
    groups = [role_named(context, name) for name in statement.groups]
    return for_new_role(context, state, role, groups, members, admins)


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
    _require_manage(context, "rename", role)
    check_is_not_materialize(role, "renamed")
    try:
        if role.name == new:
            raise NameTaken("role", new)
        return context.state.with_role(replace(role, name=new))
    except NameTaken:
        raise PgError(SqlState.DUPLICATE_OBJECT, f'role "{new}" already exists') from None


def _drop(context: Context, statement: DropRoles) -> CatalogState:
    if not _may_create_roles(context):
        detail = "Only roles with the CREATEROLE attribute and the ADMIN option on the target roles may drop roles."
        raise _refused("drop role", detail)
    state = context.state
    dropped = []
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
        _require_manage(context, "drop", role)
        dropped.append(role)
    state = state.without_memberships_of({role.id for role in dropped})
    for role in dropped:
        checkpoint()
        found = list(dependents(context, state, role))
        if found:
            raise PgError(
                SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
                f'role "{role.name}" cannot be dropped because some objects depend on it',
                detail="\n".join(found),
                hint="Use REASSIGN OWNED or DROP OWNED to remove the dependencies.",
            )
    return state.without_roles({role.id for role in dropped})


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {
    CreateRole: _create,
    AlterRole: _alter,
    RenameRole: _rename,
    DropRoles: _drop,
}
