"""The numbers of announced and of received updates at each open time."""

from __future__ import annotations

import numpy as np

from protocol.cdcv2.messages import Integers, are_before, position_of

_NONE = np.empty(0, np.int64)


class OpenCounts:
    """Counts of distinct updates. A time before the progress frontier is *covered*: its count was announced."""

    def __init__(self) -> None:
        self._times = _NONE  # covered, ascending: those with an announced or received update
        self._announced = _NONE
        self._received = _NONE
        self._early: list[Integers] = []  # times of updates that are not covered yet

    def __len__(self) -> int:
        return len(self._times) + sum(map(len, self._early))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the counts take."""
        held = (self._times, self._announced, self._received, *self._early)
        return sum(each.nbytes for each in held)

    def receive(self, times: Integers, progress: int) -> None:
        """Counts updates at these times. `progress` is the progress frontier."""
        covered = are_before(times, progress)
        if not covered.all():
            self._early.append(times[~covered])
        self._count(times[covered])

    def cover(self, times: Integers, counts: Integers, progress: int) -> None:
        """Advances the progress frontier to `progress`. The counts are all those announced for the new interval."""
        self._insert(times, counts)
        early = np.concatenate([_NONE, *self._early])
        covered = are_before(early, progress)
        self._count(early[covered])
        self._early = [early[~covered]] if not covered.all() else []

    def incomplete(self) -> tuple[Integers, Integers, Integers]:
        """The covered times whose numbers differ, with what was announced and received, ascending."""
        differ = self._announced != self._received
        return self._times[differ], self._announced[differ], self._received[differ]

    def first_incomplete(self) -> int | None:
        """The least covered time whose numbers differ."""
        differ = self._announced != self._received
        return int(self._times[np.argmax(differ)]) if differ.any() else None

    def close(self, before: int) -> None:
        """Forgets the times before a frontier, which are complete."""
        closed = position_of(self._times, before)
        if closed:
            self._times = self._times[closed:]
            self._announced, self._received = self._announced[closed:], self._received[closed:]

    def conflict(self, times: Integers, counts: Integers, lower: int, upper: int) -> int | None:
        """The least covered time in [lower, upper) for which another count was announced than these say."""
        part = slice(position_of(self._times, lower), position_of(self._times, upper))
        announced = self._announced[part] > 0
        own_times, own_counts = self._times[part][announced], self._announced[part][announced]
        given = slice(position_of(times, lower), position_of(times, upper))
        times, counts = times[given], counts[given]
        both = min(len(times), len(own_times))
        differ = (times[:both] != own_times[:both]) | (counts[:both] != own_counts[:both])
        if differ.any():
            at = int(np.argmax(differ))
            return int(min(times[at], own_times[at]))
        rest = times[both:] if len(times) > both else own_times[both:]
        return int(rest[0]) if len(rest) else None

    def _count(self, times: Integers) -> None:
        if not len(times):
            return
        at = np.searchsorted(self._times, times)
        known = at < len(self._times)
        known[known] = self._times[at[known]] == times[known]
        np.add.at(self._received, at[known], 1)
        if not known.all():
            self._insert(*np.unique(times[~known], return_counts=True), are_received=True)

    def _insert(self, times: Integers, counts: Integers, *, are_received: bool = False) -> None:
        """Inserts ascending times that are not among those that are known."""
        if not len(times):
            return
        at = np.searchsorted(self._times, times)
        nothing = np.zeros(len(times), np.int64)
        self._times = np.insert(self._times, at, times)
        self._announced = np.insert(self._announced, at, nothing if are_received else counts)
        self._received = np.insert(self._received, at, counts if are_received else nothing)
