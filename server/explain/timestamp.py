"""EXPLAIN TIMESTAMP FOR query: the timestamp at which the query would read, and its bounds.

The result is one text value in Materialize's format, so that programs that parse that format can parse it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from catalog.ids import TIMESTAMP_MAX
from catalog.objects.relations import Collection
from server.execution.as_of import valid_time
from server.execution.select import hold_at
from server.execution.times import timestamp_of
from server.session_state.context import Context
from server.session_state.transaction_errors import with_clock
from server.sql.grammar.statements.queries import AsOf
from server.sql.plan import QueryPlan

_LABEL_WIDTH = 31


async def explain_timestamp(context: Context, plan: QueryPlan, as_of: AsOf | None, *, as_json: bool) -> str:
    """Returns the text, or with `as_json` a JSON object. PgError 22000 if the time of AS OF can no longer be read."""
    frontiers = context.coordinator.frontiers
    latest = context.coordinator.latest_time()
    since, upper = frontiers.greatest_since(plan.inputs), frontiers.least_upper(plan.inputs)
    if not plan.inputs:
        time, constraints = TIMESTAMP_MAX, ["  (Constant): it reads nothing"]
    elif as_of is None:
        time = max(context.transaction.read_time or context.coordinator.read_time(plan.inputs), since)
        constraints = [f"  (IsolationLevel(StrictSerializable)): [{with_clock(latest)}]"]
    else:
        time = await timestamp_of(context, as_of.time)
        constraints = [f"  (Query's AS OF{' AT LEAST' if as_of.at_least else ''}): [{with_clock(time)}]"]
        time = valid_time(context, time, plan.inputs, at_least=as_of.at_least)
        hold_at(context, plan.inputs, time).release()
    wall_us = context.transaction_us
    immediately = not plan.inputs or time < upper
    if as_json:
        return _json(context, plan, time, latest, since, upper, immediately=immediately)
    lines = [
        _line("query timestamp", with_clock(time), " "),
        _line("oracle read timestamp", with_clock(latest), " "),
        _line("largest not in advance of upper", with_clock(upper - 1), " "),
        _line("upper", f"[{with_clock(upper)}]"),
        _line("since", f"[{with_clock(since)}]"),
        _line("can respond immediately", str(immediately).lower(), " "),
        _line("timeline", "Some(EpochMilliseconds)" if plan.inputs else "None", " "),
        _line("session wall time", with_clock(wall_us // 1_000), " "),
        *_inputs(context, plan),
        "",
        "binding constraints:",
        "lower:",
        f"  (Storage inputs: [{', '.join(sorted(plan.inputs))}]): [{with_clock(since)}]",
        *constraints,
    ]
    return "\n".join(lines)


def _line(label: str, value: str, space: str = "") -> str:
    return f"{label:>{_LABEL_WIDTH}}:{space}{value}"


def _json(
    context: Context, plan: QueryPlan, time: int, latest: int, since: int, upper: int, *, immediately: bool
) -> str:
    chosen = {"timeline": "EpochMilliseconds", "chosen_ts": time, "oracle_ts": latest}
    determination = {
        "timestamp_context": {"TimelineTimestamp": chosen} if plan.inputs else "NoTimestamp",
        "since": {"elements": [since]},
        "upper": {"elements": [upper]},
        "largest_not_in_advance_of_upper": upper - 1,
        "oracle_read_ts": latest,
    }
    sources = [
        {"name": name, "read_frontier": [read], "write_frontier": [written]}
        for name, read, written in _frontiers(context, plan)
    ]
    shown = {
        "determination": determination,
        "sources": sources,
        "session_wall_time": context.transaction_us / 1_000_000,
        "respond_immediately": immediately,
    }
    return json.dumps(shown, indent=2)


def _inputs(context: Context, plan: QueryPlan) -> Iterator[str]:
    for name, read, written in _frontiers(context, plan):
        yield ""
        yield f"source {name}:"
        yield _line("read frontier", f"[{with_clock(read)}]")
        yield _line("write frontier", f"[{with_clock(written)}]")


def _frontiers(context: Context, plan: QueryPlan) -> Iterator[tuple[str, int, int]]:
    """The name and the frontiers of each input, and of each index through which the input can be read."""
    frontiers, state = context.coordinator.frontiers, context.state
    for input in sorted(plan.inputs):
        for id in frontiers.readable_through(input):
            if id in frontiers.floors:
                item = state.items[id]
                kind = "storage" if isinstance(item, Collection) else "compute"
                name = f"{'.'.join(state.full_name(item))} ({id}, {kind})"
                yield name, frontiers.since(id), frontiers.upper(id)
