"""The functions with which a session cancels and ends others, and has the server read its configuration again."""

from __future__ import annotations

from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.session_state.session_state import SessionState


def signal(session: SessionState, function: str, process_id: int) -> bool:
    """Implements pg_cancel_backend and pg_terminate_backend, which require `privileges.require_signal`.

    pg_reload_conf, which ignores the process id, needs a superuser.
    """
    if function == "pg_reload_conf":
        if not privileges.is_superuser(session.state, session.role):
            raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied for function {function}")
        return session.signals[function](process_id)
    if function == "pg_cancel_backend" and process_id == session.process_id:
        raise PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
    other = session.coordinator.activity.sessions.get(process_id)
    if other is not None:
        cancel = function == "pg_cancel_backend"
        privileges.require_signal(session.state, session.role, other.role, cancel=cancel)
    found = session.signals[function](process_id)
    if not found:
        message = f"PID {process_id} is not a PostgreSQL backend process"
        session.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.WARNING))
    return found
