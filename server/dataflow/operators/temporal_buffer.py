"""The buffer of temporal filters: future changes sorted by time, so that due changes are found without a scan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates


@dataclass(slots=True)
class _Run:
    """Changes in the order of `times`. Those at positions before `start` have been dropped."""

    times: NDArray[np.int64]
    changes: pa.Table
    start: int = 0

    @property
    def left(self) -> int:
        return len(self.times) - self.start


class TemporalBuffer:
    """Sorted runs. The newest two are merged while the newer has at least half as many changes as the older."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema`: the row's columns and `diff`."""
        self.schema = schema
        self._runs: list[_Run] = []

    def insert(self, changes: pa.Table, times: NDArray[np.int64]) -> None:
        """Adds changes, each with its time."""
        if len(times) == 0:
            return
        self._runs.append(_sorted(changes, times))
        while len(self._runs) > 1 and 2 * self._runs[-1].left >= self._runs[-2].left:
            newer, older = self._runs.pop(), self._runs.pop()
            if (merged := self._merged(older, newer)) is not None:
                self._runs.append(merged)

    def due(self, time: int) -> pa.Table:
        """The changes at times <= `time`. They are kept until `drop`."""
        found = [r.changes.slice(r.start, self._end(r, time) - r.start) for r in self._runs]
        return pa.concat_tables([self.schema.empty_table(), *found])

    def drop(self, time: int) -> None:
        """Removes the changes at times <= `time`."""
        for run in self._runs:
            run.start = self._end(run, time)
        self._runs = [run for run in self._runs if run.left]

    @property
    def next_time(self) -> int | None:
        """The least time of a change in the buffer; None if it is empty."""
        return min((int(run.times[run.start]) for run in self._runs), default=None)

    @property
    def rows(self) -> int:
        return sum(run.left for run in self._runs)

    @staticmethod
    def _end(run: _Run, time: int) -> int:
        return max(run.start, int(np.searchsorted(run.times, time, "right")))

    def _merged(self, older: _Run, newer: _Run) -> _Run | None:
        runs = (older, newer)
        times = np.concatenate([run.times[run.start :] for run in runs])
        changes = pa.concat_tables([run.changes.slice(run.start) for run in runs])
        timed = changes.add_column(changes.num_columns - 1, "time", pa.array(times))
        kept = updates.consolidate(timed)  # drops changes that were retracted before they became due
        return _sorted(kept.drop_columns(["time"]), kept["time"].to_numpy()) if kept.num_rows else None


def _sorted(changes: pa.Table, times: NDArray[np.int64]) -> _Run:
    order = np.argsort(times, kind="stable")
    return _Run(times[order], changes.take(pa.array(order)).combine_chunks())
