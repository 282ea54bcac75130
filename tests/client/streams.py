"""The history of a relation, and the rows that a SUBSCRIBE to it would return."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Row = tuple[Any, ...]
Contents = dict[int, int]
"""The rows (k, v) of the relation, by key."""


@dataclass(frozen=True)
class History:
    """The contents of the relation from each time on, beginning with 0. `progress`: the times with a progress row."""

    states: dict[int, Contents]
    progress: frozenset[int]

    @property
    def end(self) -> int:
        return max(self.states) + 2

    def at(self, time: int) -> Contents:
        return self.states[max(t for t in self.states if t <= time)]

    def changes(self, time: int) -> list[tuple[int, int, int]]:
        """(k, v, diff), consolidated. Deletions follow insertions, which is the most difficult order for a client."""
        if time not in self.states or time == 0:
            return []
        before, after = self.at(time - 1), self.states[time]
        return [(k, v, 1) for k, v in after.items() if before.get(k) != v] + [
            (k, v, -1) for k, v in before.items() if after.get(k) != v
        ]

    def stream(self, statement: str, now: int) -> Iterator[Row]:
        """The rows up to the end of the history, which is a progress. Without AS OF the stream begins at `now`."""
        as_of = int(found[1]) if (found := re.search(r"AS OF (\d+)", statement)) else now
        yield self._row(statement, as_of, True)
        if "SNAPSHOT false" not in statement:
            for k, v in self.at(as_of).items():
                yield self._row(statement, as_of, False, (k, v, 1))
        for time in range(as_of + 1, self.end + 1):
            if time in self.progress or time == self.end:
                yield self._row(statement, time, True)
            yield from self._rows(statement, time)

    def _rows(self, statement: str, time: int) -> Iterator[Row]:
        changes = self.changes(time)
        if "ENVELOPE" not in statement:
            for change in changes:
                yield self._row(statement, time, False, change)
            return
        before, after = self.at(time - 1), self.at(time)
        for k in sorted({k for k, _, _ in changes}):
            yield self._envelope_row(statement, time, k, before.get(k), after.get(k))

    def _row(self, statement: str, time: int, progress: bool, change: tuple[int, int, int] | None = None) -> Row:
        width = 4 if "DEBEZIUM" in statement else 3
        if change is None:
            return time, progress, *(None,) * width
        k, v, diff = change
        if "ENVELOPE" in statement:
            return self._envelope_row(statement, time, k, None, v)
        return time, False, diff, k, v

    def _envelope_row(self, statement: str, time: int, k: int, before: int | None, after: int | None) -> Row:
        if "DEBEZIUM" in statement:
            state = "delete" if after is None else "insert" if before is None else "upsert"
            return time, False, state, k, before, after
        return time, False, "delete" if after is None else "upsert", k, after


def columns(statement: str) -> tuple[str, ...]:
    head = ("mz_timestamp", "mz_progressed")
    if "DEBEZIUM" in statement:
        return (*head, "mz_state", "k", "before_v", "after_v")
    return (*head, "mz_state" if "ENVELOPE" in statement else "mz_diff", "k", "v")


@st.composite
def histories(draw: st.DrawFn) -> History:
    rows = st.dictionaries(st.integers(0, 3), st.integers(0, 2), max_size=4)
    states = draw(st.dictionaries(st.integers(1, 12), rows, max_size=8))
    progress = draw(st.frozensets(st.integers(1, 14)))
    return History({0: draw(rows), **dict(sorted(states.items()))}, progress)
