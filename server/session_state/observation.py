"""What a session does at this moment, for pg_stat_activity."""

from __future__ import annotations

from server.coordinator.activity import Observation
from server.session_state.context import Context


def observed(context: Context) -> Observation:
    """The activity of the session at this moment."""
    transaction, query, settings = context.transaction, context.query, context.settings
    is_block = transaction.explicit or transaction.failed
    if query.is_active:
        state, transaction_us = "active", context.transaction_us or query.begun_us
    elif transaction.failed:
        state, transaction_us = "idle in transaction (aborted)", 0
    elif is_block:
        state, transaction_us = "idle in transaction", context.transaction_us or query.begun_us
    else:
        state, transaction_us = "idle", 0
    return Observation(
        settings["database"],
        settings["application_name"],
        state,
        query.shown_text(),
        query.begun_us or None,
        query.changed_us or None,
        transaction_us or None,
        context.coordinator.locks.is_waiting(context),
    )
