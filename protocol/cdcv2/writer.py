"""The writer: counts updates by time, and announces the counts when a frontier advances."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.cdcv2.messages import END, TIME, Progress, check_updates, position_of


class Writer:
    """Makes progress statements for updates that the caller sends as they are.

    The updates must be consolidated: at most one diff for each data and time. A writer that begins again at a frontier
    must send the same updates as its predecessor at the times from it on; readers ignore the repetitions.
    """

    def __init__(self, frontier: int = 0) -> None:
        """`frontier`: that of the last statement that is known to be written."""
        self.frontier = frontier
        self._times = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)

    def add(self, updates: pa.Table) -> None:
        """Counts updates. ValueError if a time is before the frontier."""
        if not updates.num_rows:
            return
        check_updates(updates)
        if (least := pc.min(updates[TIME]).as_py()) < self.frontier:
            raise ValueError(f"update at time {least}, which is before the frontier {self.frontier}")
        times, at = np.unique(np.concatenate([self._times, updates[TIME].to_numpy()]), return_inverse=True)
        counts = np.bincount(at[len(self._times) :], minlength=len(times))
        counts[at[: len(self._times)]] += self._counts
        self._times, self._counts = times, counts

    def advance(self, upper: int) -> Progress | None:
        """The statement for the times before `upper`, all of whose updates were added. None if it would say nothing."""
        if upper <= self.frontier:
            return None
        closed = position_of(self._times, upper)
        statement = Progress(self.frontier, upper, self._times[:closed], self._counts[:closed])
        self._times, self._counts = self._times[closed:], self._counts[closed:]
        self.frontier = upper
        return statement

    def finish(self) -> Progress | None:
        """The statement that there are no further updates ever."""
        return self.advance(END)
