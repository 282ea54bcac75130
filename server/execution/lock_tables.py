"""LOCK TABLE: locks tables as a statement that changes all their rows does, until the end of the block."""

from __future__ import annotations

from catalog.objects.tables import Table
from catalog.roles import Privilege
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.locks import Unavailable
from server.execution.names import find_item
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.writes import LockTable

_WITHOUT_EFFECT = ("access share", "row share")  # they exclude only statements that wait for no reader here
_ANY_MODE = (Privilege.UPDATE, Privilege.DELETE, Privilege.TRUNCATE, Privilege.MAINTAIN)
"""The privileges of which each permits all modes."""
_PERMITTING = {
    "access share": (*_ANY_MODE, Privilege.INSERT, Privilege.SELECT),
    **dict.fromkeys(("row share", "row exclusive"), (*_ANY_MODE, Privilege.INSERT)),
}


async def lock_tables(context: Context, statement: LockTable) -> Result:
    """Executes LOCK TABLE. PgError 25P01 outside a block, 42501 without a privilege, 55P03 with NOWAIT."""
    transaction, state = context.transaction, context.state
    if not transaction.explicit:
        message = "LOCK TABLE can only be used in transaction blocks"
        raise PgError(SqlState.NO_ACTIVE_SQL_TRANSACTION, message)
    tables = []
    for name in statement.tables:
        item = find_item(context, name)
        if not isinstance(item, Table):
            raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot lock relation "{item.name}"')
        permitting = _PERMITTING.get(statement.mode, _ANY_MODE)
        if not any(privileges.has(state, context.role, item.id, privilege) for privilege in permitting):
            raise privileges.denied(state, item.id)
        tables.append(item)
    if statement.mode in _WITHOUT_EFFECT:
        return Result("LOCK TABLE")
    if transaction.read_only:
        message = "cannot execute LOCK TABLE in a read-only transaction"
        raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, message)
    await context.admit([table.id for table in tables])
    for table in tables:  # in the order of the statement, as in PostgreSQL
        try:
            await context.lock((table.id,), nowait=statement.nowait)
        except Unavailable:
            message = f'could not obtain lock on relation "{table.name}"'
            raise PgError(SqlState.LOCK_NOT_AVAILABLE, message) from None
    context.read_times.hold_latest(frozenset(table.id for table in tables))
    return Result("LOCK TABLE")
