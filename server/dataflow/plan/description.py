"""EXPLAIN output for a delta plan: one line per node with its rule and its key, its inputs indented below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.objects import ObjectId
from server.dataflow.plan.nodes import (
    AccumulableAggregate,
    Concat,
    Constant,
    DistinctRows,
    InnerJoin,
    Linear,
    Node,
    Recompute,
    Source,
    Temporal,
    TopK,
)
from server.sql.outline import Outline


@dataclass(frozen=True, slots=True)
class Notes:
    """Additional information about a node, for example statistics: as lines of text, and by name."""

    lines: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)


def explained_delta(
    root: Node, name_of: Callable[[ObjectId], str], notes: Callable[[Node], Notes] | None = None
) -> Outline:
    """The outline of the plan. `name_of`: the name of a collection; `notes`: what is shown below a node's line."""
    numbers = {node: number for number, node in numbered(root)}
    shown: set[Node] = set()

    def outline(node: Node) -> Outline:
        if node in shown and node.inputs:
            return Outline(f"as {numbers[node]}")
        own = notes(node) if notes is not None and node not in shown else Notes()
        shown.add(node)
        text = f"{numbers[node]} {described(node, name_of)}"
        return Outline(text, tuple(map(outline, node.inputs)), notes=own.lines, figures=own.figures)

    return outline(root)


def numbered(root: Node) -> list[tuple[int, Node]]:
    """Each node once, with its number: from 1 on, a node before its inputs."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            found[node] = None
            for below in node.inputs:
                visit(below)

    visit(root)
    return list(enumerate(found, 1))


def described(node: Node, name_of: Callable[[ObjectId], str]) -> str:
    """The node's rule, with its key or its columns."""
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
        case DistinctRows():
            return f"Different rows: {called(node, range(len(node.schema)))}"
        case InnerJoin(keys=keys):
            return f"Join, {_keys(node, keys)}"
        case AccumulableAggregate(key=key):
            return f"Totals, {_keys(node, (key,))}: {called(node, range(len(key), len(node.schema)))}"
        case Recompute(first=TopK(place=place, count=count)):
            order = called(node.inputs[0], (place,))
            if not any(node.keys):
                return f"Recompute top {count}, in the order of {order}"
            return f"Recompute {node.what}, {_keys(node, node.keys)}, the top {count} in the order of {order}"
        case Recompute(keys=keys, what=what):
            return f"Recompute {what}, {_keys(node, keys)}"
    raise AssertionError(node)


def _keys(node: Node, keys: Sequence[tuple[int, ...]]) -> str:
    if not any(keys):
        return "of one group" if isinstance(node, AccumulableAggregate) else "of all rows"
    return "by " + " = ".join(f"({called(i, key)})" for i, key in zip(node.inputs, keys, strict=False))


def called(node: Node, places: Iterable[int]) -> str:
    """The names of the columns at these positions. Columns made by the planner have no name and are shown as ?."""
    return ", ".join(node.relation.columns[place].name or "?" for place in places)


@dataclass(frozen=True, slots=True)
class Kept:
    """An arrangement of an operator: the rows of an input, or state of its own, by the columns at `places`.

    `first`: the order of the rows, within a key if there is one. `own`: a description of the operator's own state.
    """

    rows_of: Node
    places: tuple[int, ...]
    first: TopK | None = None
    own: str = ""

    @property
    def name(self) -> object:
        """Equal for operators that share the arrangement. None if it is never shared."""
        node, first = self.rows_of, self.first
        if self.own or not isinstance(node, Source):
            return None
        return node.id, node.places, self.places, first and (first.place, first.descending, first.nulls_first)

    def described(self, numbers: Mapping[Node, int]) -> str:
        text = f"arrangement of {self.own or numbers[self.rows_of]}"
        if self.places:
            text += f" by ({called(self.rows_of, self.places)})"
        if self.first is not None:
            text += f"{',' if self.places else ''} in the order of {called(self.rows_of, (self.first.place,))}"
        return text if self.places or self.first is not None else f"{text}, one group"


def kept(node: Node) -> tuple[Kept, ...]:
    """The node's arrangements, in the order of `Operator.arrangements`."""
    match node:
        case InnerJoin(keys=keys):
            return tuple(Kept(below, key) for below, key in zip(node.inputs, keys, strict=True))
        case Recompute(arms=arms, keys=keys, first=first):
            return tuple(Kept(arm, key, first) for arm, key in zip(arms, keys, strict=True))
        case AccumulableAggregate(input=below, key=key, top_rows=top_rows):
            totals = Kept(below, key, own="its totals")
            return (totals, *(Kept(once, tuple(range(len(key))), first) for once, first in top_rows))
        case DistinctRows(input=below, places=places):
            return (Kept(below, places, own="its counts"),)
    return ()
