"""Changes of a session's settings: SET, SET LOCAL, RESET, and which of them COMMIT and ROLLBACK undo.

`Transaction.settings` are the settings that ROLLBACK restores, `Transaction.local` those that COMMIT restores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.pgwire.errors import PgError, SqlState
from server.session_state.context import Context
from server.settings.session_settings import Settings
from server.settings.variables import TRANSACTION_MODES, checked_value
from server.sql.grammar.lexer import quote_identifier


def joined_values(name: str, values: Iterable[str]) -> str:
    """The text of a setting with the values that SET lists. Those of search_path are names, quoted if necessary."""
    return ", ".join(map(quote_identifier, values) if name.lower() == "search_path" else values)


def set_setting(context: Context, name: str, value: str, *, local: bool = False) -> None:
    """SET, or `local` SET LOCAL. PgError as `Settings.set`, and 25001 for a mode that is too late."""
    key = name.lower()
    if key in TRANSACTION_MODES:
        _check_mode(context, key, checked_value(key, value))
    change_settings(
        context,
        lambda settings: settings.set(name, value),
        local=local or key in TRANSACTION_MODES,
        defaults=key.startswith("default_transaction_"),
    )


def reset_setting(context: Context, name: str | None, *, local: bool = False) -> None:
    """RESET, or `local` SET LOCAL ... TO DEFAULT. None: all variables."""
    defaults = name is None or name.lower().startswith("default_transaction_")
    change_settings(context, lambda settings: settings.reset(name), local=local, defaults=defaults)


def change_settings(
    context: Context, change: Callable[[Settings], None], *, local: bool = False, defaults: bool = False
) -> None:
    """Changes the session's settings; `local`: until the end of the transaction.

    `defaults`: the change may be one of default_transaction_read_only and its like, which the current transaction
    does not follow.
    """
    transaction = context.transaction
    if defaults and transaction.explicit:
        _save_settings(context)
        for mode in TRANSACTION_MODES:
            context.settings.set(mode, context.settings[mode])
    if local:
        _save_settings(context)
    change(context.settings)
    if not local and transaction.local is not None:  # COMMIT restores it; a savepoint may have the same object
        transaction.local = transaction.local.copy()
        change(transaction.local)
    if transaction.explicit or local:
        transaction.read_only = context.settings.read_only


def _check_mode(context: Context, name: str, value: str) -> None:
    """PgError 25001 if it is too late for a mode of the transaction, in PostgreSQL's words."""
    transaction, message = context.transaction, None
    savepoint = transaction.savepoints[-1] if transaction.savepoints else None
    if not transaction.explicit:
        return
    if name == "transaction_deferrable":
        if savepoint is not None:
            message = "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction"
        elif transaction.has_queried:
            message = "SET TRANSACTION [NOT] DEFERRABLE must be called before any query"
    elif value == "off" and transaction.read_only:
        if savepoint is not None and savepoint.settings.read_only:
            message = "cannot set transaction read-write mode inside a read-only transaction"
        elif transaction.has_queried:
            message = "transaction read-write mode must be set before any query"
    if message is not None:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, message)


def _save_settings(context: Context) -> None:
    """Saves the settings, which COMMIT restores. Called before the first SET LOCAL of a transaction."""
    if context.transaction.local is None:
        context.transaction.local = context.settings.copy()
