"""GRANT and REVOKE of roles (user.c), with ADMIN, INHERIT and SET options.

A membership depends on the ADMIN OPTION of its grantor. The superuser `materialize` is the grantor of what superusers
grant, and needs no option.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from catalog.ids import ObjectId
from catalog.roles import MATERIALIZE, Membership, MembershipKey, Role, Through
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.execution.ddl.acl_changes import dependent_privileges
from server.execution.ddl.named_roles import check_is_not_materialize, role_named
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import GrantRoles, MembershipOptions

Memberships = dict[MembershipKey, Membership]
PAIRS_MAX = 5_000  # of roles and members in a statement
MEMBERSHIPS_MAX = 50_000
"""Of all roles. A change of roles or memberships sorts them on the event loop."""


def _grant(context: Context, statement: GrantRoles) -> CatalogState:
    state = context.state
    granted_by = None if statement.granted_by is None else role_named(context, statement.granted_by)
    _check_pairs(len(statement.roles) * len(statement.members))
    members = [role_named(context, name) for name in statement.members]
    known = [state.role_named(name.name) for name in statement.roles]
    by_role = _by_role(state, (group.id for group in known if group is not None))
    for name in statement.roles:
        group = privileges.find_role(state, name.name)
        _require_admin(context, group, revoke=statement.revoke)
        grantor = _grantor(context, group, granted_by, revoke=statement.revoke)
        if statement.revoke:
            by_role[group.id] = _without_members(context, by_role[group.id], group, members, grantor, statement)
        else:
            by_role[group.id] = _with_members(
                context, state, by_role[group.id], group, members, grantor, statement.options
            )
    return _replaced(state, by_role)


def _check_pairs(pairs: int) -> None:
    if pairs > PAIRS_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many memberships in a statement",
            detail=f"A statement can change at most {PAIRS_MAX} memberships.",
            hint="Use several statements, in one transaction block if all must take effect at the same time.",
        )


def _by_role(state: CatalogState, roles: Iterable[ObjectId]) -> dict[ObjectId, Memberships]:
    """The memberships in each of these roles."""
    found: dict[ObjectId, Memberships] = {role: {} for role in roles}
    for key, membership in state.memberships.items():
        if key.role in found:
            found[key.role][key] = membership
    return found


def _replaced(state: CatalogState, by_role: Mapping[ObjectId, Memberships]) -> CatalogState:
    """The state with other memberships in some roles. 54000 if there are more of them, and too many."""
    others = {key: membership for key, membership in state.memberships.items() if key.role not in by_role}
    for memberships in by_role.values():
        others |= memberships
    if len(others) > max(MEMBERSHIPS_MAX, len(state.memberships)):
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many memberships",
            detail=f"All roles together can have at most {MEMBERSHIPS_MAX} memberships in roles.",
            hint="Grant roles to groups, and make other roles members of the groups.",
        )
    return state.with_memberships(others)


def _require_admin(context: Context, group: Role, *, revoke: bool) -> None:
    """PgError 42501 unless the current role may grant the role, or revoke it."""
    verb = "revoke" if revoke else "grant"
    if group.superuser:
        allowed = privileges.is_superuser(context.state, context.role)
        detail = f"Only roles with the SUPERUSER attribute may {verb} roles with the SUPERUSER attribute."
    else:
        allowed = privileges.is_admin_of(context.state, context.role, group.id)
        detail = f'Only roles with the ADMIN option on role "{group.name}" may {verb} this role.'
    if not allowed:
        message = f'permission denied to {verb} role "{group.name}"'
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, message, detail=detail)


def _grantor(context: Context, group: Role, named: Role | None, *, revoke: bool) -> Role:
    """The role that is recorded as the grantor: that of GRANTED BY, or the nearest one with ADMIN OPTION."""
    state = context.state
    if named is None:
        if privileges.is_superuser(state, context.role):
            return state.roles[MATERIALIZE.id]
        admin = state.nearest_admin(context.role, group.id, Through.INHERIT)
        if admin is None:
            raise PgError(
                SqlState.INSUFFICIENT_PRIVILEGE,
                f'permission denied to {"revoke" if revoke else "grant"} role "{group.name}"',
                detail=f'The current role inherits from no role with the ADMIN option on role "{group.name}".',
                hint="SET ROLE to the role that has the ADMIN option.",
            )
        return state.roles[admin]
    as_role = "revoke privileges granted by role" if revoke else "grant privileges as role"
    refused = PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied to {as_role} "{named.name}"')
    if not privileges.has_rights_of(state, context.role, named.id):
        act = "revoke privileges granted by this role" if revoke else "grant privileges as this role"
        refused.detail = f'Only roles with privileges of role "{named.name}" may {act}.'
        raise refused
    is_admin = state.nearest_admin(named.id, group.id, Through.INHERIT) == named.id
    if not revoke and named.id != MATERIALIZE.id and not is_admin:
        refused.detail = f'The grantor must have the ADMIN option on role "{group.name}".'
        raise refused
    return named


# -- granting --------------------------------------------------------------------------------------------------


def _with_members(
    context: Context,
    state: CatalogState,
    memberships: Memberships,
    group: Role,
    members: Iterable[Role],
    grantor: Role,
    options: MembershipOptions,
) -> Memberships:
    """The memberships in a role, given those before, after a GRANT of the role."""
    members = list(dict.fromkeys(members))
    for member in members:
        checkpoint()
        check_is_not_materialize(member, "made a member of a role")
        if member.id in state.roles_of(group.id, Through.ALL):
            message = f'role "{group.name}" is a member of role "{member.name}"'
            raise PgError(SqlState.INVALID_GRANT_OPERATION, message)
    if options.admin and grantor.id != MATERIALIZE.id:
        _check_circularity(memberships, members, grantor)
    changed = dict(memberships)
    given = {
        name: value
        for name, value in (("admin", options.admin), ("inherit", options.inherit), ("may_set", options.may_set))
        if value is not None
    }
    for member in members:
        key = MembershipKey(group.id, member.id, grantor.id)
        old = memberships.get(key)
        new = replace(old or Membership(inherit=member.inherit), **given)
        if new == old:
            message = (
                f'role "{member.name}" has already been granted membership in role "{group.name}" '
                f'by role "{grantor.name}"'
            )
            context.notice(Notice(message))
        changed[key] = new
    return changed


def _check_circularity(memberships: Memberships, members: Iterable[Role], grantor: Role) -> None:
    """PgError 0LP01 if the grantor would not have ADMIN OPTION without the memberships of the members."""
    left = dict(memberships)
    ids = {member.id for member in members}
    _revoke(left, [key for key in memberships if key.member in ids], admin_only=False, cascade=True)
    if not any(key.member == grantor.id and membership.admin for key, membership in left.items()):
        message = "ADMIN option cannot be granted back to your own grantor"
        raise PgError(SqlState.INVALID_GRANT_OPERATION, message)


# -- revoking --------------------------------------------------------------------------------------------------


def _without_members(
    context: Context,
    memberships: Memberships,
    group: Role,
    members: Iterable[Role],
    grantor: Role,
    statement: GrantRoles,
) -> Memberships:
    """The memberships in a role after a REVOKE of the role, or of one option."""
    left, options = dict(memberships), statement.options
    revoked = []
    for member in dict.fromkeys(members):
        key = MembershipKey(group.id, member.id, grantor.id)
        if key not in memberships:
            message = (
                f'role "{member.name}" has not been granted membership in role "{group.name}" by role "{grantor.name}"'
            )
            context.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.WARNING))
        elif options.inherit:
            left[key] = replace(left[key], inherit=False)
        elif options.may_set:
            left[key] = replace(left[key], may_set=False)
        else:
            revoked.append(key)
    _revoke(left, revoked, admin_only=bool(options.admin), cascade=statement.cascade)
    return left


def _revoke(memberships: Memberships, keys: Iterable[MembershipKey], *, admin_only: bool, cascade: bool) -> None:
    """Removes memberships in one role, or their ADMIN OPTION, and those that depend on them.

    PgError 2BP01 if others depend on them, unless `cascade`.
    """
    granted: dict[ObjectId, list[MembershipKey]] = defaultdict(list)
    admins: dict[ObjectId, int] = defaultdict(int)
    for key, membership in memberships.items():
        granted[key.grantor].append(key)
        admins[key.member] += membership.admin
    queue = [(key, admin_only) for key in keys]
    while queue:
        key, only = queue.pop()
        old = memberships.get(key)
        if old is None or (only and not old.admin):
            continue
        if only:
            memberships[key] = replace(old, admin=False)
        else:
            del memberships[key]
        admins[key.member] -= old.admin
        if not old.admin or admins[key.member]:
            continue
        for dependent in granted[key.member]:
            if dependent in memberships:
                if not cascade:
                    raise dependent_privileges()
                queue.append((dependent, False))


def without_grants_of(state: CatalogState, grantor: ObjectId) -> CatalogState:
    """The state without the memberships that a role granted, and those that depend on them."""
    by_role = _by_role(state, (key.role for key in state.memberships if key.grantor == grantor))
    for memberships in by_role.values():
        own = [key for key in memberships if key.grantor == grantor]
        _revoke(memberships, own, admin_only=False, cascade=True)
    return _replaced(state, by_role)


def for_new_role(
    context: Context,
    state: CatalogState,
    role: Role,
    groups: Iterable[Role],
    members: Iterable[Role],
    admins: Iterable[Role],
) -> CatalogState:
    """The state with the memberships of a new role: IN ROLE, that of its creator, ROLE and ADMIN. PgError 42501."""
    groups, members, admins = (list(dict.fromkeys(roles)) for roles in (groups, members, admins))
    _check_pairs(len(groups) + len(members) + len(admins))
    by_role = _by_role(state, (group.id for group in groups))
    for group in groups:
        _require_admin(context, group, revoke=False)
        grantor = _grantor(context, group, None, revoke=False)
        by_role[group.id] = _with_members(
            context, state, by_role[group.id], group, [role], grantor, MembershipOptions()
        )
    state = _replaced(state, by_role)
    own: Memberships = {}
    grantor = state.roles[MATERIALIZE.id]
    if not privileges.is_superuser(state, context.role):
        # the creator may manage the new role
        own[MembershipKey(role.id, context.role, grantor.id)] = Membership(admin=True, inherit=False, may_set=False)
        grantor = state.roles[context.role]
    own = _with_members(context, state, own, role, members, grantor, MembershipOptions())
    own = _with_members(context, state, own, role, admins, grantor, MembershipOptions(admin=True))
    return _replaced(state, {role.id: own})


CHANGES: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {GrantRoles: _grant}
