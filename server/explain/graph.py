"""A plan as a graph, in the languages of Mermaid and Graphviz: rows flow from the bottom to the top."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from server.sql.outline import Outline

_REFERENCE = re.compile(r"as (\d+)")  # to a node that is shown elsewhere, by its number
_MERMAID = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "})
_DOT = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": " "})


@dataclass(frozen=True, slots=True)
class _Graph:
    """`nodes`: the lines of each node's label. `edges`: (from, to), by the numbers of `nodes`."""

    nodes: list[list[str]]
    edges: list[tuple[int, int]]


def mermaid(plan: Outline) -> Iterator[str]:
    """The lines of a Mermaid flowchart, which for example GitHub shows in Markdown."""
    graph = _graph(plan)
    yield "flowchart BT"
    for number, lines in enumerate(graph.nodes):
        yield f'    n{number}["{"<br/>".join(line.translate(_MERMAID) for line in lines)}"]'
    for below, above in graph.edges:
        yield f"    n{below} --> n{above}"


def dot(plan: Outline) -> Iterator[str]:
    """The lines of a Graphviz graph."""
    graph = _graph(plan)
    yield "digraph plan {"
    yield "    rankdir=BT"
    yield "    node [shape=box]"
    for number, (first, *rest) in enumerate(graph.nodes):
        label = first.translate(_DOT) + ("\\n" if rest else "") + "".join(f"{line.translate(_DOT)}\\l" for line in rest)
        yield f'    n{number} [label="{label}"]'
    for below, above in graph.edges:
        yield f"    n{below} -> n{above}"
    yield "}"


def _graph(plan: Outline) -> _Graph:
    found = _Graph([], [])
    numbered: dict[str, int] = {}
    references: list[tuple[str, int]] = []

    def visit(outline: Outline, above: int | None) -> None:
        if above is not None and (reference := _REFERENCE.fullmatch(outline.text)) is not None:
            references.append((reference[1], above))
            return
        number = outline.text.partition(" ")[0]
        node = numbered.get(number, len(found.nodes)) if number.isdigit() else len(found.nodes)
        if node == len(found.nodes):
            found.nodes.append([outline.text + outline.annotation, *outline.notes])
            numbered[number] = node
        if above is not None:
            found.edges.append((node, above))
        for below in outline.below:
            visit(below, node)

    visit(plan, None)
    found.edges.extend((numbered[number], above) for number, above in references)
    return found
