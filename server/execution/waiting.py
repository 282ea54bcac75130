"""Calls the functions that wait, advisory locks and pg_sleep(), and pg_notify().

They wait on the event loop and can be cancelled.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyarrow as pa

from protocol.pgwire.errors import Notice, Severity, SqlState
from server.coordinator.locks import EXCLUSIVE, SHARED
from server.coordinator.notifications import Notification
from server.session_state.advisory_locks import Advisory, lock_name
from server.session_state.context import Context
from server.sql.constant import Bindings, compiled
from server.sql.expressions import Array, Column, Expression, SessionValue
from server.sql.relations import Relation, Values
from server.sql.waiting import calls, with_results

_SLEEP_MAX_S = 3e9  # a century, for a longer time
_DAY_NS = 86_400 * 10**9
_MONTH_DAYS = 30


async def rows_after_waiting(context: Context, relation: Relation, bindings: Bindings) -> pa.Table:
    """The rows of a constant query, after the functions that wait have been called in the order of the query."""
    results = [await _called(context, call, bindings) for call in calls(relation)]
    constant = compiled(with_results(relation, results))
    assert constant is not None
    return await context.evaluator.evaluate(constant, bindings)


async def _called(context: Context, call: SessionValue, bindings: Bindings) -> Any:
    """The result of a call; None if an argument is NULL, except of pg_notify()."""
    assert isinstance(call.argument, Array)
    values = [await _value(context, argument, bindings) for argument in call.argument.elements]
    if call.name == "pg_notify":
        channel, payload = values
        context.transaction.pending.notify(Notification.checked(channel or "", payload or ""), context.process_id)
        return ""
    if None in values:
        return None
    if not call.name.startswith("pg_sleep"):
        return await _advisory(context, call.name, tuple(values))
    match call.name, values[0]:
        case "pg_sleep", seconds:
            await _sleep(seconds)
        case "pg_sleep_for", interval:
            days = interval.months * _MONTH_DAYS + interval.days
            await _sleep((days * _DAY_NS + interval.nanoseconds) / 10**9)
        case _, at_us:
            await _sleep(at_us / 10**6 - time.time())
    return ""


async def _value(context: Context, argument: Expression, bindings: Bindings) -> Any:
    column = Column(0, "", argument.type, argument.nullable, 0)
    constant = compiled(Values((column,), ((argument,),)))
    assert constant is not None
    return await context.evaluator.value(constant, bindings)


async def _sleep(seconds: float) -> None:
    if seconds > 0:  # not if it is NaN
        await asyncio.sleep(min(seconds, _SLEEP_MAX_S))


async def _advisory(context: Context, function: str, numbers: tuple[int, ...]) -> bool | str:
    locks, until_end = context.advisory_locks, context.transaction.advisory
    if function == "pg_advisory_unlock_all":
        locks.unlock_all(until_end)
        return ""
    is_shared = function.endswith("_shared")
    lock = Advisory(lock_name(context.settings["database"], numbers), SHARED if is_shared else EXCLUSIVE)
    if function.startswith("pg_advisory_unlock"):
        found = locks.unlock(lock, until_end)
        if not found:
            kind = "ShareLock" if is_shared else "ExclusiveLock"
            message = f"you don't own a lock of type {kind}"
            context.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.WARNING))
        return found
    tries = function.startswith("pg_try")
    timeout_s = 0 if tries else context.lock_timeout_s
    is_locked = await locks.lock(lock, timeout_s, until_end if "xact" in function else None)
    return is_locked if tries else ""
