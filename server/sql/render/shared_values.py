"""Values that the expressions of a SELECT use several times. Subqueries below the SELECT compute them once."""

from __future__ import annotations

import re

_NAME = re.compile(r"\blet\d+\b")


class SharedValues:
    """Names of values, given by their texts. A text may contain names that were given before.

    `subqueries`: the columns that each subquery adds, texts by name; the innermost subquery is first.
    """

    def __init__(self) -> None:
        self.subqueries: list[dict[str, str]] = []
        self._names: dict[str, str] = {}

    def name(self, text: str) -> str:
        """The column that will contain the value of `text`, the same for equal texts."""
        if text not in self._names:
            used = set(_NAME.findall(text))
            level = max((i + 1 for i, columns in enumerate(self.subqueries) if used & columns.keys()), default=0)
            if level == len(self.subqueries):
                self.subqueries.append({})
            self._names[text] = f"let{len(self._names)}"
            self.subqueries[level][self._names[text]] = text
        return self._names[text]
