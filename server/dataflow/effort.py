"""How much Spark is given to compute in a tick, against what it is given to compute all rows."""

from __future__ import annotations

FEW_ROWS = 30_000  # a tick may cost what so many rows cost in any case: no more than a few empty jobs


class TooMuch(Exception):
    """The tick is more work than a computation of everything would be."""


class Effort:
    """What the statements of one dataflow cost, the unit being a row that is read to compute everything.

    A tick computes the rows of the keys that it touches before and after, finds them and keeps what became of them, so
    each costs several times as much, and one that touches many is more work than all rows once. That is seen as early
    as can be: of its changes, counted before they are read, each is expected to be read as often as a row was when
    everything was computed, or as a change of the last large tick; then of what keys have, before it is looked up; then
    of what was found, before Spark has it.
    """

    def __init__(self) -> None:
        self._whole = 0  # rows that everything took
        self._rows = 0
        self._cost = 0.0
        self._followed = 0.0  # what changes of all rows read would cost
        self._limit: int | None = None
        self._changes = 0
        self._a_change = 1.0  # costs so much, as far as that is known

    def begin(self, changes: int = 0, *, limited: bool = False) -> None:
        """A tick of so many changes begins. TooMuch if it is known that it will take more than everything."""
        self._rows, self._cost, self._followed, self._changes = 0, 0.0, 0.0, changes
        self._limit = max(FEW_ROWS, self._whole) if limited else None
        if self._limit is not None and changes * self._a_change > self._limit:
            raise TooMuch

    def expect(self, rows: int, cost: float) -> None:
        """A statement is going to read so many rows at least, which are yet to be found. As `add`, which is to come."""
        if self._limit is not None and self._cost + rows * cost > self._limit:
            self._learn(self._cost + rows * cost)
            raise TooMuch

    def add(self, rows: int, cost: float, met: float = 1.0) -> None:
        """A statement is to read so many rows, each of which costs so much in a tick. TooMuch if that is too much.

        `met`: of so many rows a tick computes something anew for each that changes.
        """
        self.expect(rows, cost)
        self._rows += rows
        self._cost += rows * cost
        self._followed += rows * cost * met

    def end(self, *, whole: int | None = None) -> None:
        """The tick worked. `whole`: it was everything, of so many rows of the inputs."""
        if whole is not None:
            self._whole = self._rows
            self._a_change = self._followed / max(whole, 1)
        elif self._cost > FEW_ROWS:
            self._learn(self._cost)

    def _learn(self, cost: float) -> None:
        self._a_change = cost / max(self._changes, 1)
