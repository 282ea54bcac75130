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
    Recompute,
    Source,
    Temporal,
    Totals,
)


def explained_delta(root: Node, name_of: Callable[[ObjectId], str]) -> list[str]:
    """The plan's lines. `name_of` gives the name of a collection."""
    lines: list[str] = []
    numbers = {id(node): number for number, node in numbered(root)}
    shown: set[int] = set()

    def line(node: Node, depth: int) -> None:
        if id(node) in shown and node.inputs:
            lines.append("  " * depth + f"as {numbers[id(node)]}")
            return
        shown.add(id(node))
        lines.append("  " * depth + f"{numbers[id(node)]} {described(node, name_of)}")
        for below in node.inputs:
            line(below, depth + 1)

    line(root, 0)
    return lines


def numbered(root: Node) -> list[tuple[int, Node]]:
    """The nodes, each once, with the numbers by which they are known: from 1 on, each before its inputs."""
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in found:
            found[id(node)] = node
            for below in node.inputs:
                visit(below)

    visit(root)
    return list(enumerate(found.values(), 1))


def described(node: Node, name_of: Callable[[ObjectId], str]) -> str:
    """The node's rule and what it goes by."""
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
        case InnerJoin(keys=keys):
            return f"Join, {_keys(node, keys)}"
        case Totals(key=key):
            return f"Totals, {_keys(node, (key,))}: {called(node, range(len(key), len(node.schema)))}"
        case Recompute(first=First(place=place, count=count)):
            return f"Recompute top {count}, in the order of {called(node.inputs[0], (place,))}"
        case Recompute(keys=keys, what=what):
            return f"Recompute {what}, {_keys(node, keys)}"
    raise AssertionError(node)


def _keys(node: Node, keys: Sequence[tuple[int, ...]]) -> str:
    if not any(keys):
        return "of one group" if isinstance(node, Totals) else "of all rows"
    return "by " + " = ".join(f"({called(i, key)})" for i, key in zip(node.inputs, keys, strict=True))


def called(node: Node, places: Iterable[int]) -> str:
    """The names of columns; those that the planner made have none."""
    return ", ".join(node.relation.columns[place].name or "?" for place in places)
