"""A delta plan as a person reads it: one line a node with its rule and its key, its inputs indented below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from catalog.objects import ObjectId
from server.dataflow.nodes import (
    Concat,
    Constant,
    First,
    InnerJoin,
    Linear,
    Node,
    Once,
    Recompute,
    Source,
    Temporal,
    Totals,
)


def explained_delta(root: Node, name_of: Callable[[ObjectId], str]) -> list[str]:
    """The plan's lines. `name_of` gives the name of a collection."""
    lines: list[str] = []
    numbers: dict[int, int] = {}

    def line(node: Node, depth: int) -> None:
        if id(node) in numbers and node.inputs:
            lines.append("  " * depth + f"as {numbers[id(node)]}")
            return
        numbers[id(node)] = len(numbers) + 1
        lines.append("  " * depth + f"{numbers[id(node)]} {_described(node, name_of)}")
        for below in node.inputs:
            line(below, depth + 1)

    line(root, 0)
    return lines


def _described(node: Node, name_of: Callable[[ObjectId], str]) -> str:
    match node:
        case Source():
            columns = called(node, range(len(node.schema)))
            return f"Changes of {name_of(node.id)}" + (f": {columns}" if columns else "")
        case Constant():
            return "Constant rows"
        case Linear(scan=None):
            return f"Linear: {called(node, range(len(node.schema)))}"
        case Linear():
            return f"Rows as they are: {called(node, range(len(node.schema)))}"
        case Temporal():
            return "Temporal filter, rows that wait by time"
        case Concat():
            return "Union all"
        case Once():
            return f"Different rows: {called(node, range(len(node.schema)))}"
        case InnerJoin(keys=keys):
            return f"Join, {_keys(node, keys)}"
        case Totals(key=key):
            return f"Totals, {_keys(node, (key,))}: {called(node, range(len(key), len(node.schema)))}"
        case Recompute(first=First(place=place, count=count)):
            order = called(node.inputs[0], (place,))
            if not any(node.keys):
                return f"Recompute top {count}, in the order of {order}"
            return f"Recompute {node.what}, {_keys(node, node.keys)}, the top {count} in the order of {order}"
        case Recompute(keys=keys, what=what):
            return f"Recompute {what}, {_keys(node, keys)}"
    raise AssertionError(node)


def _keys(node: Node, keys: Sequence[tuple[int, ...]]) -> str:
    if not any(keys):
        return "of one group" if isinstance(node, Totals) else "of all rows"
    return "by " + " = ".join(f"({called(i, key)})" for i, key in zip(node.inputs, keys, strict=False))


def called(node: Node, places: Iterable[int]) -> str:
    """The names of columns; those that the planner made have none."""
    return ", ".join(node.relation.columns[place].name or "?" for place in places)
