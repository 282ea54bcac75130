"""Deterministic results for order-dependent window functions over RANGE frames.

Peers are rows with equal ORDER BY values. A RANGE frame starts and ends with whole groups of peers, whose order among
themselves is not defined. These functions therefore use one total order. In a total order each row has its own frame,
so all peers get the function's value at the last peer or, if the frame starts at the current row, at the first peer.
Frames that are bounded by an offset are not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from server.sql.columns import NewColumns
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Column, ColumnRef, SortKey, WindowCall
from server.sql.functions.table import FUNCTIONS
from server.sql.relations import Relation, Window, only

Total = Callable[[WindowCall], tuple[SortKey, ...]]
"""Returns the call's ORDER BY, extended to a total order."""

_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_UP_TO_HERE = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_FROM_HERE = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
_ODD_PEERS = ("bpchar", "interval", "json", "jsonb")  # values can be equal in ORDER BY but not in PARTITION BY


def frames_settled(node: Window, total: Total, new: NewColumns) -> Relation:
    """The window with its order-dependent calls evaluated in the total order."""
    below: list[tuple[WindowCall, Column]] = []

    def at_peers(call: WindowCall, frame: str, name: str) -> WindowCall:
        """The function's value at the first or last peer. The frame remains RANGE, so identical rows remain peers."""
        column = new.column("", call)
        below.append((replace(call, order=total(call), frame=frame), column))
        function = FUNCTIONS[name][0]
        value = AggregateCall(function, (ColumnRef(column),), call.type, True, column.precision)
        return _over_peers(replace(call, call=value), total)

    def settled(call: WindowCall) -> WindowCall:
        name, whole = call.call.function.name, replace(call, order=total(call), frame=_WHOLE)
        if not tells_order(call) or any(_is_odd(key) for key in call.order):
            return call
        match call.frame.upper() or (_ranged(_UP_TO_HERE) if call.order else _ranged(_WHOLE)), name:
            case "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", _:
                return whole
            case "RANGE BETWEEN CURRENT ROW AND CURRENT ROW", _:
                return _over_peers(call, total)
            case "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "first_value":
                return whole
            case "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "last_value":
                return _over_peers(call, total)
            case "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", _:
                return at_peers(call, _ranged(_UP_TO_HERE), "last_value")
            case "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "first_value":
                return _over_peers(call, total)
            case "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "last_value":
                return whole
            case "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", _:
                return at_peers(call, _ranged(_FROM_HERE), "first_value")
        return call

    calls = tuple(map(settled, node.calls))
    if not below:
        return replace(node, calls=calls)
    own = node.columns[len(node.input.columns) :]
    columns = (*node.input.columns, *(column for _, column in below))
    inner = Window(node.input, tuple(call for call, _ in below), columns)
    return only(Window(inner, calls, (*columns, *own)), node.columns)


def tells_order(call: WindowCall) -> bool:
    """Whether the result depends on the order of the frame's rows and the frame is not a ROWS frame."""
    name = call.call.function.name
    return (name.endswith("_value") or "_agg" in name) and name != "any_value" and not call.frame.startswith("ROWS")


def _over_peers(call: WindowCall, total: Total) -> WindowCall:
    peers = (*call.partition, *(key.expression for key in call.order if key.expression not in call.partition))
    return replace(call, partition=peers, order=total(call), frame=_WHOLE)


def _ranged(frame: str) -> str:
    return frame.replace("ROWS", "RANGE", 1)


def _is_odd(key: SortKey) -> bool:
    return key.expression.type.name in _ODD_PEERS or key.expression.type.element is not None
