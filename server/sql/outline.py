"""The output of EXPLAIN as a tree: formatted as indented text, or as JSON in the format of PostgreSQL's EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        return list(self._lines(depth))

    def _lines(self, depth: int) -> Iterator[str]:
        yield INDENT * depth + self.text + self.annotation
        for note in self.notes:
            yield INDENT * (depth + 2) + note
        for outline in self.below:
            yield from outline._lines(depth + 1)

    def json(self) -> dict[str, object]:
        """The JSON format, with PostgreSQL's names `Node Type` and `Plans`."""
        shown: dict[str, object] = {"Node Type": self.text, **self.figures}
        if self.below:
            shown["Plans"] = [outline.json() for outline in self.below]
        return shown
