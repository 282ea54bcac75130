"""The roles that statements name."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.roles import MATERIALIZE, Role
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.session_state.context import Context
from server.sql.grammar.statements.roles import RoleName, SpecialRole


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


def roles_named(context: Context, names: Iterable[RoleName]) -> list[Role]:
    """The roles that a statement names, each once. PgError 42704."""
    return list({role.id: role for role in (role_named(context, name) for name in names)}.values())


def check_is_not_materialize(role: Role, done: str) -> None:
    """PgError 0A000 for the superuser that always exists. `done`: what cannot be done, such as "renamed"."""
    if role.id == MATERIALIZE.id:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'role "{role.name}" cannot be {done}',
            detail="It is the superuser that always exists.",
            hint="CREATE ROLE ... SUPERUSER creates other superusers.",
        )
