"""The reader for times that are integers: restores a history from its statements, whatever their order and number.

docs/cdcv2.md has the states as a table. `PartialReader` is the plain form, one row at a time and for partially ordered
times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from protocol.cdcv2.messages import END, TIME, TIME_MAX, Integers, Progress, are_before, check_updates
from protocol.cdcv2.open_counts import OpenCounts
from protocol.cdcv2.open_updates import OpenUpdates

SHOWN_TIMES_MAX = 10
_COUNT_BYTES = 16  # of a time and its count


@dataclass(frozen=True, slots=True)
class Batch:
    """The updates at the times from the last frontier to this one, in the order of their times."""

    updates: pa.Table
    frontier: int


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A time for which other than the announced number of updates was received."""

    time: int
    announced: int
    received: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reasons why the frontier does not advance.

    `times`: the first times with missing updates, or with more than announced. `missing`: updates of all times, at
    most 2**63 - 1.
    `uncovered`: the least time without a progress statement; `queued`: the least `lower` of the statements after it.
    `contradiction`: the least time for which statements announce different counts. It never closes.
    """

    frontier: int
    times: tuple[Incomplete, ...]
    missing: int
    uncovered: int
    queued: int | None
    contradiction: int | None


class Reader:
    """Returns each update of a history once, when its time is closed.

    A time is closed when progress statements cover it and all times before it, and exactly the announced updates have
    arrived. Memory: the updates and statements that are not closed.
    """

    def __init__(self, schema: pa.Schema, frontier: int = 0) -> None:
        """`schema`: of updates: the columns of the data, TIME and DIFF. `frontier`: where an earlier reader ended."""
        self.schema = schema
        self.frontier = frontier
        """All updates at times before it were returned. `END`: the history is complete."""
        self.duplicates = 0
        """Updates that were received before, or whose times were closed."""
        self._progress = frontier  # all times before it are covered
        self._updates = OpenUpdates(schema)
        self._counts = OpenCounts()
        self._queue: list[tuple[int, int, int, Progress]] = []  # by lower, of statements that are not adjacent yet
        self._queued: set[tuple[int, int, bytes]] = set()
        self._queued_bytes = 0  # of the counts of queued statements
        self._numbers = 0
        self._accepted: deque[tuple[int, int]] = deque()  # upper and arrival; the uppers are ascending
        self._contradiction = END

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the open updates and the counts of open times take."""
        return self._updates.nbytes + self._counts.nbytes + self._queued_bytes

    @property
    def open_updates(self) -> int:
        """The number of updates that are held."""
        return len(self._updates)

    @property
    def open_times(self) -> int:
        """The number of counts that are held, also of queued statements, and of updates that no statement covers."""
        return len(self._counts) + self._queued_bytes // _COUNT_BYTES

    @property
    def open_statements(self) -> int:
        """The number of progress statements that are held."""
        return len(self._queue) + len(self._accepted)

    def receive(self, updates: pa.Table | None, statements: Sequence[Progress] = (), arrival: int = 0) -> Batch | None:
        """Takes messages, and returns what they close, or None if the frontier stays.

        `arrival` numbers the calls for `oldest`. MessageError if an update is invalid; then nothing has changed.
        """
        if updates is not None and updates.num_rows:
            check_updates(updates)
            self._receive_updates(updates, arrival)
        self._receive_statements(statements, arrival)
        bound = min(self._progress, self._contradiction)
        incomplete = self._counts.first_incomplete()
        bound = bound if incomplete is None else min(bound, incomplete)
        if bound <= self.frontier:
            return None
        self.frontier = bound
        self._counts.close(bound)
        while self._accepted and self._accepted[0][0] <= bound:
            self._accepted.popleft()
        return Batch(self._updates.take(bound), bound)

    def oldest(self) -> int | None:
        """The least arrival of what is held; None if nothing is.

        A reader that begins at `frontier` and receives everything since then continues as this one.
        """
        held = [arrival for _, _, arrival, _ in self._queue]
        held += [arrival for _, arrival in self._accepted]
        updates = self._updates.oldest()
        return min(held if updates is None else [*held, updates], default=None)

    def waiting(self) -> Waiting:
        """The reasons why the frontier does not advance."""
        times, announced, received = self._counts.incomplete()
        shown = (column[:SHOWN_TIMES_MAX].tolist() for column in (times, announced, received))
        return Waiting(
            self.frontier,
            tuple(Incomplete(*each) for each in zip(*shown, strict=True)),
            _sum(np.maximum(announced - received, 0)),
            self._progress,
            self._queue[0][0] if self._queue else None,
            None if self._contradiction == END else self._contradiction,
        )

    def _receive_updates(self, updates: pa.Table, arrival: int) -> None:
        count = updates.num_rows
        times: Integers = updates[TIME].to_numpy()
        if self.frontier and (closed := are_before(times, self.frontier)).any():
            updates = updates.filter(pa.array(~closed))
        if updates.num_rows:
            new = self._updates.add(updates, arrival)
            self._counts.receive(new, self._progress)
            count -= len(new)
        self.duplicates += count

    def _receive_statements(self, statements: Sequence[Progress], arrival: int) -> None:
        for statement in statements:
            if statement.upper <= max(self.frontier, statement.lower):
                continue  # nothing is open that it speaks of
            if (identity := statement.identity()) not in self._queued:
                self._queued.add(identity)
                self._queued_bytes += len(statement.times) * _COUNT_BYTES
                heapq.heappush(self._queue, (statement.lower, self._numbers, arrival, statement))
                self._numbers += 1
        times: list[Integers] = []
        counts: list[Integers] = []
        while self._queue and self._queue[0][0] <= self._progress:
            _, _, arrived, statement = heapq.heappop(self._queue)
            self._queued.discard(statement.identity())
            self._queued_bytes -= len(statement.times) * _COUNT_BYTES
            if max(statement.lower, self.frontier) < self._progress:
                self._cover(times, counts)
                self._compare(statement)
            if statement.upper > self._progress:
                new = ~are_before(statement.times, self._progress)
                times.append(statement.times[new])
                counts.append(statement.counts[new])
                self._progress = statement.upper
                self._accepted.append((statement.upper, arrived))
        self._cover(times, counts)

    def _cover(self, times: list[Integers], counts: list[Integers]) -> None:
        """Announces counts of adjacent intervals, and clears the lists."""
        if times:
            self._counts.cover(np.concatenate(times), np.concatenate(counts), self._progress)
            times.clear()
            counts.clear()

    def _compare(self, statement: Progress) -> None:
        """Compares the counts of a statement with those announced before, for the open times of both."""
        lower, upper = max(statement.lower, self.frontier), min(statement.upper, self._progress)
        conflict = self._counts.conflict(statement.times, statement.counts, lower, upper)
        if conflict is not None:
            self._contradiction = min(self._contradiction, conflict)


def _sum(counts: Integers) -> int:
    """The sum of counts, at most that of an int64. A statement may announce any number."""
    high, low = int((counts >> 32).sum()), int((counts & 0xFFFF_FFFF).sum())  # sums that cannot overflow
    return min((high << 32) + low, TIME_MAX)
