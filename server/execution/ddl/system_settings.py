"""ALTER SYSTEM."""

from __future__ import annotations

from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.dataflow.arrangements.file_arrangement import EXECUTORS
from server.session_state.context import Context
from server.session_state.setting_changes import joined_values
from server.settings.variables import check_default, checked_value, find_variable
from server.sql.grammar.statements.settings import AlterSystem


def alter_system(context: Context, statement: AlterSystem) -> CatalogState:
    """Server variables take effect immediately. Session variables become the defaults of new sessions."""
    if context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "ALTER SYSTEM cannot run inside a transaction block")
    state, name = context.state, statement.name
    if not privileges.is_superuser(state, context.role):
        what = f'set parameter "{name}"' if name is not None else "perform ALTER SYSTEM RESET ALL"
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {what}")
    if name is None:
        return state.with_settings({})
    settings = {key: value for key, value in state.settings.items() if key != name.lower()}
    if statement.values is not None:
        check_default(find_variable(name).name)
        settings[name.lower()] = value = checked_value(name, joined_values(name, statement.values))
        if (
            name.lower() == "arrangement_probing"
            and value == EXECUTORS
            and not context.coordinator.arrangements.has_directory
        ):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the server has no directory for arrangements that executors probe",
                hint="Start it with --arrangement-directory.",
            )
    else:
        find_variable(name)
    return state.with_settings(settings)
