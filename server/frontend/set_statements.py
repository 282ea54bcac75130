"""SET of variables, SET ROLE and SET SESSION AUTHORIZATION."""

from __future__ import annotations

from catalog.roles import Role
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.frontend.transactions import outside_block
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.setting_changes import change_settings, joined_values, reset_setting, set_setting
from server.settings.variables import LISTS
from server.sql.grammar import statements as s


def set_variable(context: Context, statement: s.SetVariable) -> Result:
    """Executes SET. As in PostgreSQL, SET LOCAL outside a block only sends a warning."""
    name, values, local = statement.name, statement.values, statement.local
    if local and not context.transaction.explicit:
        context.notice(outside_block("SET LOCAL can only be used in transaction blocks"))
    elif statement.is_default:
        reset_setting(context, name, local=local)
    elif len(values) > 1 and name.lower() not in LISTS:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"SET {name} takes only one argument")
    else:
        set_setting(context, name, joined_values(name, values), local=local)
    return Result("SET")


def set_role(context: Context, statement: s.SetRole) -> Result:
    """Executes SET ROLE and SET SESSION AUTHORIZATION, as `set_variable`."""
    if statement.local and not context.transaction.explicit:
        context.notice(outside_block("SET LOCAL can only be used in transaction blocks"))
    elif statement.session:
        _set_session_authorization(context, statement.name, statement.local)
    else:
        _set_current_role(context, statement.name, statement.local)
    return Result("SET")


def _set_session_authorization(context: Context, name: str | None, local: bool) -> None:
    """PgError 22023 if the role does not exist, 42501 unless the session connected as it or as a superuser."""
    state = context.state
    if name is None:
        return reset_setting(context, "session_authorization", local=local)
    role = _role_named(state, name)
    if role.id != context.authenticated and not privileges.is_superuser(state, context.authenticated):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied to set session authorization "{name}"')
    return change_settings(context, lambda settings: settings.authorize(name, superuser=role.superuser), local=local)


def _set_current_role(context: Context, name: str | None, local: bool) -> None:
    """PgError 22023 if the role does not exist, 42501 if the session's role may not SET ROLE to it."""
    state = context.state
    if name is None:
        return reset_setting(context, "role", local=local)
    role = _role_named(state, name)
    if not privileges.may_set_role(state, context.login, role.id):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied to set role "{name}"')
    return change_settings(context, lambda settings: settings.assume_role(name, superuser=role.superuser), local=local)


def _role_named(state: CatalogState, name: str) -> Role:
    """PgError 22023, as for any other invalid value of a setting, if there is no such role."""
    role = state.role_named(name)
    if role is None:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'role "{name}" does not exist')
    return role
