"""EXPLAIN output for a delta plan: one line per node with its rule and its key, its inputs indented below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.ids import ObjectId
from server.dataflow.plan.nodes import (
    AccumulableAggregate,
    Concat,
    Constant,
    DistinctRows,
    DistinctValues,
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
    """Returns the number of each node: 1, 2, ..., a node before its inputs."""
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
            columns = column_names(node, range(len(node.schema)))
            return f"Changes of {name_of(node.id)}" + (f": {columns}" if columns else "")
        case Constant():
            return "Constant"
        case Linear(scan=None):
            return f"Map/Filter/Project: {column_names(node, range(len(node.schema)))}"
        case Linear():
            return f"Project: {column_names(node, range(len(node.schema)))}"
        case Temporal():
            return "Temporal filter"
        case Concat():
            return "Union all"
        case DistinctRows():
            return f"Distinct: {column_names(node, range(len(node.schema)))}"
        case DistinctValues(members=members):
            return f"Distinct: {column_names(node, range(len(node.schema) - 1))}, of {len(members)} subsets"
        case InnerJoin(keys=keys):
            return f"Join, {_keys(node, keys)}"
        case AccumulableAggregate(key=key):
            columns = column_names(node, range(len(key), len(node.schema)))
            return f"Aggregate (accumulable), {_keys(node, (key,))}: {columns}"
        case Recompute(top_k=TopK(column=column, count=count)):
            order = column_names(node.inputs[0], (column,))
            if not any(node.keys):
                return f"Recompute top {count}, in the order of {order}"
            return f"Recompute {node.what}, {_keys(node, node.keys)}, the top {count} in the order of {order}"
        case Recompute(keys=keys, what=what):
            return f"Recompute {what}, {_keys(node, keys)}"
    raise AssertionError(node)


def _keys(node: Node, keys: Sequence[tuple[int, ...]]) -> str:
    if not any(keys):
        return "of one group" if isinstance(node, AccumulableAggregate) else "of all rows"
    return "by " + " = ".join(f"({column_names(i, key)})" for i, key in zip(node.inputs, keys, strict=False))


def column_names(node: Node, positions: Iterable[int]) -> str:
    """The names of the columns at these positions. Columns made by the planner have no name and are shown as ?."""
    return ", ".join(node.relation.columns[position].name or "?" for position in positions)


@dataclass(frozen=True, slots=True)
class OperatorArrangement:
    """An arrangement of an operator: the rows of an input, or state of its own, by the columns at `positions`.

    `top_k`: the order of the rows, within a key if there is one. `own`: a description of the operator's own state.
    """

    rows_of: Node
    positions: tuple[int, ...]
    top_k: TopK | None = None
    own: str = ""

    @property
    def name(self) -> object:
        """A name that is the same for all operators that share the arrangement. None if it is never shared."""
        node, top_k = self.rows_of, self.top_k
        if self.own or not isinstance(node, Source):
            return None
        return node.id, node.positions, self.positions, top_k and (top_k.column, top_k.descending, top_k.nulls_first)

    def described(self, numbers: Mapping[Node, int]) -> str:
        text = f"arrangement of {self.own or numbers[self.rows_of]}"
        if self.positions:
            text += f" by ({column_names(self.rows_of, self.positions)})"
        if self.top_k is not None:
            text += (
                f"{',' if self.positions else ''} in the order of {column_names(self.rows_of, (self.top_k.column,))}"
            )
        return text if self.positions or self.top_k is not None else f"{text}, one group"


def arrangements_of(node: Node) -> tuple[OperatorArrangement, ...]:
    """The node's arrangements, in the order of `Operator.arrangements`."""
    match node:
        case InnerJoin(keys=keys):
            return tuple(OperatorArrangement(below, key) for below, key in zip(node.inputs, keys, strict=True))
        case Recompute(branches=branches, keys=keys, top_k=top_k, results_by=by):
            read = [OperatorArrangement(branch, key, top_k) for branch, key in zip(branches, keys, strict=True)]
            return (*read, *([] if by is None else [OperatorArrangement(node, by, own="its results")]))
        case AccumulableAggregate(input=below, key=key, top_rows=top_rows):
            totals = OperatorArrangement(below, key, own="sums and counts")
            return (
                totals,
                *(OperatorArrangement(distinct, tuple(range(len(key))), top_k) for distinct, top_k in top_rows),
            )
        case DistinctRows(input=below, positions=positions):
            return (OperatorArrangement(below, positions, own="multiplicities"),)
        case DistinctValues(input=below, key=key, members=members):
            return (OperatorArrangement(below, (*key, members[0]), own="multiplicities"),)
    return ()
