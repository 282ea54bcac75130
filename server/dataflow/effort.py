"""How much Spark is given to compute in a tick, against what it is given to compute all rows."""

from __future__ import annotations

FEW_ROWS = 10_000  # a tick may read so many in any case: it takes no longer than a few empty jobs
SHARE = 4  # a row that is followed through a state costs so many times what it costs to compute it


class TooMuch(Exception):
    """The tick is more work than a computation of everything would be."""


class Effort:
    """Counts the rows that statements read, in one dataflow.

    A tick computes the rows of the keys that it touches before and after, finds them and keeps what became of them, so
    one that touches many is more work than all rows once. That is seen when the rows are found, before Spark has
    them. What the last large tick took a change tells it of the next one before anything is done.
    """

    def __init__(self, share: int = SHARE) -> None:
        """`share`: how many times less than everything a tick may read."""
        self._share = share
        self._whole = 0  # what everything took
        self._read = 0
        self._limit: int | None = None
        self._changes = 0
        self._a_change = 1.0  # rows read, as far as that is known

    def begin(self, changes: int = 0, *, limited: bool = False) -> None:
        """A tick of so many changes begins. TooMuch if it is known that it will take more than everything."""
        self._read, self._changes = 0, changes
        self._limit = max(FEW_ROWS, self._whole // self._share) if limited else None
        if self._limit is not None and changes * self._a_change > self._limit:
            raise TooMuch

    def add(self, rows: int) -> None:
        """A statement is to read so many rows. TooMuch if they are too many for a tick."""
        self._read += rows
        if self._limit is not None and self._read > self._limit:
            self._learn()
            raise TooMuch

    def end(self, *, whole: bool = False) -> None:
        """The tick worked; `whole`: it was everything."""
        if whole:
            self._whole = self._read
        elif self._read > FEW_ROWS:
            self._learn()

    def _learn(self) -> None:
        self._a_change = self._read / max(self._changes, 1)
