"""The errors of a transaction that reads at a time before the history, or data that another transaction has changed."""

from __future__ import annotations

from datetime import UTC, datetime

from catalog.ids import ObjectId
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.session_state.session_state import SessionState
from server.timeline.frontiers import NotReadable

_DATETIME_END_MS = 253_402_300_800_000  # the year 10000


def serialization_failure(state: CatalogState, relation: ObjectId | None) -> PgError:
    """40001. `relation`: the relation that was changed; None: the definition of an object."""
    item = None if relation is None else state.items.get(relation)
    changed = "An object" if item is None else f'{item.kind.capitalize()} "{item.name}"'
    return PgError(
        SqlState.SERIALIZATION_FAILURE,
        "could not serialize access due to concurrent update",
        detail=f"{changed} was changed by another transaction after this one had read it.",
        hint="The transaction might succeed if retried.",
    )


def not_readable(context: SessionState, error: NotReadable, as_of: int) -> PgError:
    """Returns the error for an AS OF before the readable times, in Materialize's words."""
    item = context.state.items.get(error.collection)
    name = ".".join(context.state.full_name(item)) if item is not None else error.collection
    hint = f"Read at {error.since} or later."
    ahead = context.coordinator.holds.ahead_of(error.collection, as_of)
    if ahead is not None and (hold := context.coordinator.state.items.get(ahead)) is not None:
        at = context.coordinator.holds.positions[ahead].at
        hold_name = ".".join(context.coordinator.state.full_name(hold))
        hint = f'The hold "{hold_name}" is at {at}, after the requested time. {hint}'
    return PgError(
        SqlState.DATA_EXCEPTION,
        "could not find a valid timestamp for the query",
        detail=f"Constraints:\nlower:\n  (Storage inputs: [{error.collection}]): [{with_clock(error.since)}]\n"
        f"upper:\n  (Query's AS OF): [{with_clock(as_of)}]\n"
        f'That is, the earliest readable time of "{name}" is {error.since}.',
        hint=hint,
    )


def with_clock(time: int) -> str:
    """Milliseconds since 1970, followed by the time in UTC if `datetime` can represent it."""
    if time >= _DATETIME_END_MS:
        return str(time)
    clock = datetime.fromtimestamp(time / 1_000, UTC)
    return f"{time} ({clock:%Y-%m-%d %H:%M:%S}.{time % 1_000:03})"
