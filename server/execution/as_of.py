"""The time of AS OF."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.execution.times import timestamp_of
from server.session_state.context import Context
from server.session_state.transaction_errors import with_clock
from server.sql.grammar.statements.queries import AsOf


async def as_of_time(context: Context, as_of: AsOf, inputs: Iterable[ObjectId]) -> int:
    """The time at which a query reads its inputs. PgError 22000 if the server may lack changes of that time."""
    return valid_time(context, await timestamp_of(context, as_of.time), inputs, at_least=as_of.at_least)


def valid_time(context: Context, time: int, inputs: Iterable[ObjectId], *, at_least: bool) -> int:
    """As `as_of_time`. `at_least`: the first time from `time` on at which the inputs can be read."""
    if not at_least:
        check_not_lost(context, time, inputs)
        return time
    lost_until = context.coordinator.lost_times.end(time)
    return context.coordinator.frontiers.next_readable(inputs, time if lost_until is None else lost_until)


def check_not_lost(context: Context, time: int, inputs: Iterable[ObjectId]) -> None:
    """PgError 22000 if the server was restored from a backup, and may lack changes of the inputs at `time`.

    Relations with the times of another server have its changes.
    """
    until = context.coordinator.lost_times.end(time)
    if until is not None and not context.coordinator.frontiers.upstream_times.issuperset(inputs):
        raise PgError(
            SqlState.DATA_EXCEPTION,
            "could not find a valid timestamp for the query",
            detail="The server was restored from a backup. It may lack changes that were made at this time, and until "
            f"{with_clock(until)}.",
            hint=f"Begin with a new snapshot: leave out AS OF, or read at {until} or later.",
        )
