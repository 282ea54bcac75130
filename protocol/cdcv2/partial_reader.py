"""The reader for partially ordered times, one row at a time. For integers it is the plain form of `Reader`.

Differences from the algorithm of differential dataflow's `capture`:

- A statement may be used in part. With progress frontier P, and a statement about the times beyond L and not beyond U:

      P' = minimal({ p : p ∈ P, p not beyond L } ∪ { p ∨ u : p ∈ P beyond L, u ∈ U })

  There, a statement waits until every p is beyond L. For integers this is the same. Otherwise P' is the frontier of the
  times that no statement covers, which is as early as the statements allow.
- A covered time with more updates than announced holds the frontier back, and so do statements that disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from protocol.cdcv2.orders import Order, is_beyond, minimal

T = TypeVar("T", bound=Hashable)
D = TypeVar("D", bound=Hashable)
Update: TypeAlias = tuple[D, T, int]


@dataclass(frozen=True)
class Statement(Generic[T]):
    """The number of updates at each time beyond `lower` and not beyond `upper`: 0 if the time is not in `counts`."""

    lower: tuple[T, ...]
    upper: tuple[T, ...]
    counts: Mapping[T, int]


class PartialReader(Generic[D, T]):
    """Returns each update once, when its time and all times before it are complete."""

    def __init__(self, order: Order[T], minimum: T) -> None:
        """`minimum`: the least time of the order."""
        self.frontier: tuple[T, ...] = (minimum,)
        """The minimal times that are not closed. All updates at times that are not beyond it were returned."""
        self._order = order
        self._updates: set[Update[D, T]] = set()
        self._received: Counter[T] = Counter()
        self._progress: tuple[T, ...] = (minimum,)
        self._statements: list[Statement[T]] = []
        self._contradictions: set[T] = set()

    def receive(
        self, updates: Sequence[Update[D, T]], statements: Sequence[Statement[T]] = ()
    ) -> tuple[set[Update[D, T]], tuple[T, ...]] | None:
        """Takes messages. Returns the updates that they close and the new frontier, or None if it stays."""
        for update in updates:
            if self._is_open(update[1]) and update not in self._updates:
                self._updates.add(update)
                self._received[update[1]] += 1
        for statement in statements:
            self._add(statement)
        self._advance()
        incomplete = [time for time in {*self._received, *self._announced()} if self._is_incomplete(time)]
        frontier = minimal(self._order, [*self._progress, *incomplete])
        if set(frontier) == set(self.frontier):
            return None
        self.frontier = frontier
        closed = {update for update in self._updates if not self._is_open(update[1])}
        self._updates -= closed
        self._received = Counter({t: count for t, count in self._received.items() if self._is_open(t)})
        self._statements = [s for s in self._statements if not self._is_closed(s)]
        return closed, frontier

    def _add(self, statement: Statement[T]) -> None:
        if self._is_closed(statement) or statement in self._statements:
            return
        for other in self._statements:
            for time in {*statement.counts, *other.counts}:
                covered = self._covers(statement, time) and self._covers(other, time)
                if covered and statement.counts.get(time, 0) != other.counts.get(time, 0) and self._is_open(time):
                    self._contradictions.add(time)
        self._statements.append(statement)

    def _advance(self) -> None:
        """Advances the progress frontier as far as the statements cover all times before it."""
        changed = True
        while changed:
            before = set(self._progress)
            for statement in self._statements:
                found: list[T] = []
                for element in self._progress:
                    if is_beyond(self._order, statement.lower, element):
                        found += [self._order.join(element, upper) for upper in statement.upper]
                    else:
                        found.append(element)
                self._progress = minimal(self._order, found)
            changed = set(self._progress) != before

    def _announced(self) -> dict[T, int]:
        """The counts of all open times for which some statement has one."""
        found: dict[T, int] = {}
        for statement in self._statements:
            found |= {time: count for time, count in statement.counts.items() if self._is_open(time)}
        return found

    def _is_incomplete(self, time: T) -> bool:
        """Whether an open time is covered, and other than the announced updates were received."""
        if is_beyond(self._order, self._progress, time):
            return False
        return time in self._contradictions or self._announced().get(time, 0) != self._received[time]

    def _covers(self, statement: Statement[T], time: T) -> bool:
        return is_beyond(self._order, statement.lower, time) and not is_beyond(self._order, statement.upper, time)

    def _is_open(self, time: T) -> bool:
        return is_beyond(self._order, self.frontier, time)

    def _is_closed(self, statement: Statement[T]) -> bool:
        """Whether all times that a statement speaks of are closed: each open time beyond `lower` is beyond `upper`."""
        return all(
            is_beyond(self._order, statement.upper, self._order.join(lower, element))
            for lower in statement.lower
            for element in self.frontier
        )
