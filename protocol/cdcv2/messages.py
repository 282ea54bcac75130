"""The two kinds of message, for times that are integers.

A message is a statement about the final history, which is a set of updates `(data, time, diff)`. It is true forever, so
it may be repeated, delayed and reordered without limit.

- Updates: these updates are in the history. They are a `pa.Table`: the columns of the data, then `TIME` and `DIFF`.
- `Progress`: for each time `t` with `lower <= t < upper`, the history has so many updates at `t`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TIME, DIFF = "time", "diff"
TIME_FIELD = pa.field(TIME, pa.int64(), nullable=False)
DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)
TIME_MAX = (1 << 63) - 1
MESSAGE_UPDATES = 1_000  # updates of a written message
MESSAGE_BYTES = 512 * 1024  # of a written message with more than one update; brokers accept 1 MB by default
END = 1 << 63
"""The empty frontier: no time is beyond it. It is greater than every time."""

Integers = NDArray[np.int64]


class MessageError(Exception):
    """The message is no statement about a history. It is skipped."""


@dataclass(frozen=True, eq=False, slots=True)
class Progress:
    """The numbers of updates at the times of an interval. `times` is ascending, and `counts` are positive."""

    lower: int
    upper: int
    times: Integers
    counts: Integers

    @classmethod
    def of(cls, lower: Sequence[int], upper: Sequence[int], counts: Sequence[tuple[int, int]]) -> Progress:
        """A statement with frontiers as they are written: sets of times, of which the least counts. MessageError."""
        for time in (*lower, *upper, *(time for time, _ in counts)):
            if not 0 <= time <= TIME_MAX:
                raise MessageError(f"progress names the time {time}, which is not between 0 and {TIME_MAX}")
        for time, count in counts:
            if not 0 <= count <= TIME_MAX:
                raise MessageError(f"progress has the count {count} for time {time}")
        given = (lower, upper, [time for time, _ in counts], [count for _, count in counts])
        return cls.of_arrays(*(np.array(each, np.int64) for each in given))

    @classmethod
    def of_arrays(cls, lower: Integers, upper: Integers, times: Integers, counts: Integers) -> Progress:
        """As `of`, with the counts of times as two arrays."""
        for named in (lower, upper, times):
            if len(named) and (least := int(named.min())) < 0:
                raise MessageError(f"progress names the time {least}, which is not between 0 and {TIME_MAX}")
        if len(counts) and counts.min() < 0:
            at = int(np.argmax(counts < 0))
            raise MessageError(f"progress has the count {counts[at]} for time {times[at]}")
        begin, end = (int(each.min()) if len(each) else END for each in (lower, upper))
        if end < begin:
            raise MessageError(f"progress has the upper {frontier(end)}, which is before its lower {frontier(begin)}")
        order = np.argsort(times, kind="stable")
        order = order[counts[order] > 0]
        times, counts = times[order], counts[order]
        if (repeated := np.flatnonzero(times[1:] == times[:-1])).size:
            raise MessageError(f"progress has two counts for time {times[repeated[0]]}")
        if len(times) and not begin <= int(times[0]) <= int(times[-1]) < end:
            raise MessageError(f"progress has a count for a time that is not in {interval(begin, end)}")
        return cls(begin, end, times, counts)

    def identity(self) -> tuple[int, int, bytes]:
        """A small value that is the same for equal statements, and different for others."""
        counts = hashlib.blake2b(np.concatenate([self.times, self.counts]).data)
        return self.lower, self.upper, counts.digest()


def message_bounds(offsets: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Cuts encoded updates into messages of at most `MESSAGE_UPDATES` and `MESSAGE_BYTES`. `offsets`: of the updates.

    Returns the numbers of the first update of each message, and of the first one after it.
    """
    start, count = 0, len(offsets) - 1
    while start < count:
        fitting = int(np.searchsorted(offsets, int(offsets[start]) + MESSAGE_BYTES, "right")) - 1
        stop = max(min(fitting, start + MESSAGE_UPDATES, count), start + 1)
        yield start, stop
        start = stop


def interval(lower: int, upper: int) -> str:
    """The interval as messages for people have it."""
    return f"[{lower}, {'' if upper == END else upper})"


def frontier(time: int) -> str:
    """The frontier as messages for people have it."""
    return "[]" if time == END else f"[{time}]"


def check_updates(updates: pa.Table) -> None:
    """MessageError if the times are not between 0 and `TIME_MAX`, or if a time or diff is NULL."""
    if updates[TIME].null_count or updates[DIFF].null_count:
        raise MessageError("update without time or diff")
    if updates.num_rows and (least := pc.min(updates[TIME]).as_py()) < 0:
        raise MessageError(f"update at time {least}, which is negative")


def are_before(times: Integers, frontier: int) -> NDArray[np.bool_]:
    """A mask of the times before a frontier, which may be `END`."""
    return np.ones(len(times), np.bool_) if frontier > TIME_MAX else times < frontier


def position_of(times: Integers, frontier: int) -> int:
    """The number of times, which are ascending, before a frontier, which may be `END`."""
    return len(times) if frontier > TIME_MAX else int(np.searchsorted(times, frontier))
