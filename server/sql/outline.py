"""The output of EXPLAIN as a tree: formatted as indented text, or as JSON in the format of PostgreSQL's EXPLAIN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Outline:
    """A line and the lines below it.

    `figures`: the node's properties, by their JSON names. In text format the same information is appended to the line
    (`annotation`) and written in separate lines below it (`notes`).
    """

    text: str
    below: tuple[Outline, ...] = ()
    annotation: str = ""
    notes: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)

    def lines(self, depth: int = 0) -> list[str]:
        """The lines of the text format."""
        lines: list[str] = []
        stack = [(depth, self)]
        while stack:
            depth, outline = stack.pop()
            lines.append(INDENT * depth + outline.text + outline.annotation)
            lines += [INDENT * (depth + 2) + note for note in outline.notes]
            stack += [(depth + 1, below) for below in reversed(outline.below)]
        return lines

    def json(self) -> dict[str, object]:
        """The JSON format, with PostgreSQL's names `Node Type` and `Plans`."""
        shown: dict[str, object] = {"Node Type": self.text, **self.figures}
        if self.below:
            shown["Plans"] = [outline.json() for outline in self.below]
        return shown
