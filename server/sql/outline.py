"""A plan to be shown: lines below lines as text, or the same as JSON in the shape that PostgreSQL's EXPLAIN has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Outline:
    """A line and those below it.

    `figures`: what is known of it, by the names of JSON; as text the same stands behind the line (`told`) and in lines
    of its own (`notes`).
    """

    text: str
    below: tuple[Outline, ...] = ()
    told: str = ""
    notes: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)

    def lines(self, depth: int = 0) -> list[str]:
        """The text, line by line."""
        return list(self._lines(depth))

    def _lines(self, depth: int) -> Iterator[str]:
        yield INDENT * depth + self.text + self.told
        for note in self.notes:
            yield INDENT * (depth + 2) + note
        for outline in self.below:
            yield from outline._lines(depth + 1)

    def json(self) -> dict[str, object]:
        """PostgreSQL's names for what a plan has in any case: `Node Type` and `Plans`."""
        shown: dict[str, object] = {"Node Type": self.text, **self.figures}
        if self.below:
            shown["Plans"] = [outline.json() for outline in self.below]
        return shown
