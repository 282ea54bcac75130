"""Random histories as messages, and an oracle that decides by definition what they say."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Generic, TypeVar

from protocol.cdcv2.orders import Order, is_beyond, minimal
from protocol.cdcv2.partial_reader import Statement, Update

T = TypeVar("T", bound=Hashable)


@dataclass
class Oracle(Generic[T]):
    """What the received messages say, decided for each time of `times` by going through all messages.

    `times`: all times that messages name, and greater ones that stand for all further times.
    """

    order: Order[T]
    times: Sequence[T]
    updates: set[Update[str, T]] = field(default_factory=set)
    statements: list[Statement[T]] = field(default_factory=list)

    def receive(self, updates: Iterable[Update[str, T]], statements: Iterable[Statement[T]]) -> None:
        self.updates |= set(updates)
        self.statements += statements

    def frontier(self) -> set[T]:
        """The minimal times that are not complete."""
        return set(minimal(self.order, [time for time in self.times if not self._is_complete(time)]))

    def closed(self) -> set[Update[str, T]]:
        frontier = self.frontier()
        return {update for update in self.updates if not is_beyond(self.order, frontier, update[1])}

    def _is_complete(self, time: T) -> bool:
        covering = [
            s for s in self.statements
            if is_beyond(self.order, s.lower, time) and not is_beyond(self.order, s.upper, time)
        ]  # fmt: skip
        received = sum(update[1] == time for update in self.updates)
        return bool(covering) and {s.counts.get(time, 0) for s in covering} == {received}


def random_updates(random: Random, times: Sequence[T], count: int) -> set[Update[str, T]]:
    """Updates with at most one diff for each data and time."""
    keys = {(f"row {random.randrange(8)}", random.choice(times)) for _ in range(count)}
    return {(data, time, random.choice([-2, -1, 1, 3])) for data, time in keys}


def statement(order: Order[T], updates: set[Update[str, T]], lower: Sequence[T], upper: Sequence[T]) -> Statement[T]:
    """The true statement about an interval."""
    counts: dict[T, int] = {}
    for _, time, _ in updates:
        if is_beyond(order, lower, time) and not is_beyond(order, upper, time):
            counts[time] = counts.get(time, 0) + 1
    return Statement(tuple(lower), tuple(upper), counts)


def cut(random: Random, order: Order[T], updates: set[Update[str, T]], times: Sequence[T]) -> list[Statement[T]]:
    """A writer's statements: frontiers that advance from the least time, to the end or not."""
    found = []
    lower: tuple[T, ...] = (times[0],)
    while lower and random.random() < 0.9:
        advanced = [order.join(element, random.choice(times)) for element in lower for _ in range(random.randint(1, 2))]
        upper = minimal(order, advanced) if random.random() < 0.85 else ()
        found.append(statement(order, updates, lower, upper))
        lower = upper
    return found


Call = tuple[list[Update[str, T]], list[Statement[T]]]


def mangled(random: Random, updates: set[Update[str, T]], statements: list[Statement[T]]) -> list[Call[T]]:
    """The messages in random calls: some omitted, all in random order, many more than once."""
    kept: list[object] = [each for each in (*sorted(updates, key=repr), *statements) if random.random() < 0.95]
    kept += random.choices(kept, k=random.randrange(2 * len(kept))) if kept else []
    window = random.choice([1, 4, len(kept) + 1])
    kept.sort(key=lambda each: (_begin(each), 0)) if random.random() < 0.5 else random.shuffle(kept)
    for start in range(0, len(kept), window):
        part = kept[start : start + window]
        random.shuffle(part)
        kept[start : start + window] = part
    calls: list[Call[T]] = []
    while kept:
        size = random.randint(1, 6)
        part, kept = kept[:size], kept[size:]
        calls.append(([u for u in part if isinstance(u, tuple)], [s for s in part if isinstance(s, Statement)]))
    return calls


def _begin(message: object) -> object:
    time = message.lower[0] if isinstance(message, Statement) else message[1]  # type: ignore[index]
    return time if isinstance(time, tuple) else (time,)


def grid(size: int, dimensions: int) -> list[tuple[int, ...]]:
    """All tuples below `size` in each part, the least one first."""
    return list(product(range(size), repeat=dimensions))
