"""RETAIN HISTORY: how long the history of a table, materialized view or index stays readable."""

from __future__ import annotations

from catalog.objects.catalog_object import Item
from catalog.objects.relations import Retained
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INTERVAL
from server.execution.times import interval_text, milliseconds_of
from server.session_state.context import Context

RETAIN_MS_MAX = 100 * 365 * 86_400_000


def retained_ms(context: Context, text: str | None) -> int | None:
    """The duration of RETAIN HISTORY FOR in milliseconds; None without one. PgError 22007, 22008 or 22023."""
    if text is None:
        return None
    duration_ms = milliseconds_of(parse_text(INTERVAL, "0s" if text == "0" else text))
    if duration_ms == 0 and context.settings["enable_unlimited_retain_history"] == "off":
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            "RETAIN HISTORY FOR 0, which keeps all history, is not enabled",
            hint="ALTER SYSTEM SET enable_unlimited_retain_history = on enables it.",
        )
    if not 0 <= duration_ms <= RETAIN_MS_MAX:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid RETAIN HISTORY: "{text}" is out of range',
            detail="History is kept for a positive duration of at most a hundred years.",
        )
    return duration_ms


def retain_clause(item: Item) -> str:
    """The WITH clause of a CREATE statement; empty for an item with the server's default or without history."""
    if not isinstance(item, Retained) or item.retain_ms is None:
        return ""
    return f" WITH (RETAIN HISTORY FOR '{interval_text(item.retain_ms)}')"
