"""The times of an arrangement's leases, of which the least is known without looking at all of them.

Each of a thousand indexes with the same key has a lease of one arrangement, and advances it after every commit.
"""

from __future__ import annotations

import heapq
from collections import Counter

from catalog.ids import Timestamp


class Times:
    """A multiset of times. Each operation takes amortized logarithmic time."""

    def __init__(self) -> None:
        self._counts: Counter[Timestamp] = Counter()
        self._ordered: list[Timestamp] = []  # a heap of the distinct times, and of some that were removed

    def add(self, time: Timestamp) -> None:
        if not self._counts[time]:
            heapq.heappush(self._ordered, time)
        self._counts[time] += 1

    def remove(self, time: Timestamp) -> None:
        """Removes one of the times that are equal to `time`."""
        self._counts[time] -= 1
        if not self._counts[time]:
            del self._counts[time]

    @property
    def least(self) -> Timestamp:
        """The least time; there must be one."""
        while self._ordered[0] not in self._counts:
            heapq.heappop(self._ordered)
        return self._ordered[0]
