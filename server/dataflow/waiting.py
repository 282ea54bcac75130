"""Changes whose time has not come, found again by their time without a look at those of later ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates


@dataclass(slots=True)
class _Run:
    """Changes in the order of `times`; those before `start` are gone."""

    times: NDArray[np.int64]
    changes: pa.Table
    start: int = 0

    @property
    def left(self) -> int:
        return len(self.times) - self.start


class Waiting:
    """Runs that are merged when the newer is at least half as large as the older: few, and cheap to keep."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema`: of changes, a row's columns and `diff`."""
        self.schema = schema
        self._runs: list[_Run] = []

    def insert(self, changes: pa.Table, times: NDArray[np.int64]) -> None:
        """Each change at its time."""
        if len(times) == 0:
            return
        self._runs.append(_sorted(changes, times))
        while len(self._runs) > 1 and 2 * self._runs[-1].left >= self._runs[-2].left:
            newer, older = self._runs.pop(), self._runs.pop()
            if (merged := self._merged(older, newer)) is not None:
                self._runs.append(merged)

    def due(self, time: int) -> pa.Table:
        """The changes at times up to `time`; they stay until `drop`."""
        found = [r.changes.slice(r.start, self._end(r, time) - r.start) for r in self._runs]
        return pa.concat_tables([self.schema.empty_table(), *found])

    def drop(self, time: int) -> None:
        """Lets go of the changes at times up to `time`."""
        for run in self._runs:
            run.start = self._end(run, time)
        self._runs = [run for run in self._runs if run.left]

    @property
    def next_time(self) -> int | None:
        """The least time of a change that waits."""
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
        kept = updates.consolidate(timed)  # what comes and goes before its time is not kept
        return _sorted(kept.drop_columns(["time"]), kept["time"].to_numpy()) if kept.num_rows else None


def _sorted(changes: pa.Table, times: NDArray[np.int64]) -> _Run:
    order = np.argsort(times, kind="stable")
    return _Run(times[order], changes.take(pa.array(order)).combine_chunks())
