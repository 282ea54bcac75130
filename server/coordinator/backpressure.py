"""Backpressure: measures the lag of dataflows and delays the writers of their inputs while it is too large.

Changes that a dataflow has not taken remain: as batches in the log, and as updates in arrangements that it shares. A
dataflow that is slower than the writers would let them grow without bound. Writers of its inputs, directly or through
materialized views, therefore wait while the lag exceeds a limit, before they take a lock or a timestamp. Each write
waits at most `delay_s`, so that writers make progress even while Spark is unavailable or a step takes an hour.
Dataflows that are not hydrated and views that fail delay nobody, because waiting would not reduce their lag.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import structlog

from catalog.batches import Batch, Payload
from catalog.ids import TIMESTAMP_MAX, ObjectId, Timestamp
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Pulse

COMMIT_BYTES = 4096  # memory that a commit takes in addition to its rows
TRIM_MIN = 1_024  # entries that no dataflow needs are removed when there are at least so many

log = structlog.get_logger()


class Dataflow(Protocol):
    """The part of a dataflow's interface that backpressure uses."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def next_time(self) -> Timestamp:
        """The dataflow has taken all changes before this time."""
        ...

    @property
    def is_resting(self) -> bool:
        """Whether the dataflow has taken all changes."""
        ...

    @property
    def can_catch_up(self) -> bool:
        """Whether the dataflow is hydrated and has not failed, so that it reduces its lag over time."""
        ...


@dataclass(frozen=True, slots=True)
class Lag:
    """The changes that a dataflow has not taken. `weight`: bytes in memory or on disk."""

    commits: int = 0
    bytes: int = 0

    @property
    def weight(self) -> int:
        return self.bytes + self.commits * COMMIT_BYTES

    def __add__(self, other: Lag) -> Lag:
        return Lag(self.commits + other.commits, self.bytes + other.bytes)


@dataclass(slots=True)
class _Written:
    """The commits to one collection: their times, and the cumulative bytes up to and including each."""

    times: list[Timestamp] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    start: int = 0

    def add(self, time: Timestamp, bytes: int) -> None:
        self.times.append(time)
        self.ends.append((self.ends[-1] if self.ends else self.start) + bytes)

    def since(self, time: int) -> Lag:
        first = bisect_left(self.times, time)
        before = self.ends[first - 1] if first else self.start
        return Lag(len(self.times) - first, (self.ends[-1] if self.ends else self.start) - before)

    def forget(self, time: int) -> None:
        first = bisect_left(self.times, time)
        if first >= TRIM_MIN:
            self.start = self.ends[first - 1]
            del self.times[:first], self.ends[:first]


class Backpressure:
    """Counts what is written to the inputs of dataflows. `measure` determines lags, and `admit` delays writers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._written: dict[ObjectId, _Written] = {}
        self._throttled: frozenset[ObjectId] = frozenset()
        self._delay_s = 0.0
        self._weight_max = 0
        self._moved = Pulse()
        self._is_measured = False  # since the last write
        self.lagging: frozenset[str] = frozenset()
        """The dataflows that delayed writers as of the last `measure`."""

    def track(self, flow: Dataflow) -> None:
        """Starts to count what is written to the inputs of a dataflow."""
        for id in flow.inputs:
            self._written.setdefault(id, _Written())

    def written(self, batches: Iterable[tuple[Batch, Payload]]) -> None:
        """Counts a commit to tables or a materialized view."""
        self._is_measured = False
        for batch, _ in batches:
            if (written := self._written.get(batch.collection)) is not None:
                written.add(batch.time, batch.bytes)

    def lag(self, flow: Dataflow) -> Lag:
        """Returns what was written to the inputs at times >= `next_time`, as far as it was counted since `track`."""
        return sum((self._written[id].since(flow.next_time) for id in flow.inputs if id in self._written), Lag())

    def exceeds_limit(self, flow: Dataflow) -> bool:
        """Whether a dataflow's lag exceeds the limit of the last `measure`."""
        return 0 < self._weight_max < self.lag(flow).weight

    @property
    def may_have_changed(self) -> bool:
        """Whether `measure` may find other lags than the last time: while nothing is written, none increases."""
        return not self._is_measured or bool(self.lagging)

    def measure(
        self,
        flows: Mapping[str, Dataflow],
        sources: Mapping[ObjectId, frozenset[ObjectId]],
        weight_max: int,
        delay_s: float,
    ) -> None:
        """Determines which tables' writers wait until the next call. `sources`: the inputs of each materialized view.

        `weight_max`: the largest allowed lag; 0: no writer waits. `delay_s`: the longest wait of a write.
        """
        needed: dict[ObjectId, Timestamp] = {}
        lagging: dict[str, Lag] = {}
        throttled: set[ObjectId] = set()
        self._is_measured = True
        for name, flow in flows.items():
            if flow.is_resting:
                for id in flow.inputs:
                    needed.setdefault(id, Timestamp(TIMESTAMP_MAX))
                continue
            for id in flow.inputs:
                needed[id] = min(needed.get(id, flow.next_time), flow.next_time)
            if weight_max and flow.can_catch_up and (lag := self.lag(flow)).weight > weight_max:
                lagging[name] = lag
                throttled |= flow.inputs
        for id in self._written.keys() - needed.keys():
            del self._written[id]
        for id, time in needed.items():
            if id in self._written:
                self._written[id].forget(time)
        queue = list(throttled)
        while queue:
            more = sources.get(queue.pop(), frozenset()) - throttled
            throttled |= more
            queue += more
        for name, lag in lagging.items():
            if name not in self.lagging:
                log.warning("writers wait for a dataflow", dataflow=name, commits=lag.commits, bytes=lag.bytes)
        for name in self.lagging - lagging.keys():
            log.info("writers no longer wait for a dataflow", dataflow=name)
        self.lagging = frozenset(lagging)
        self._delay_s, self._weight_max = delay_s, weight_max
        if throttled != self._throttled:
            self._throttled = frozenset(throttled)
            self._moved.fire()

    def delays(self, tables: Collection[ObjectId]) -> bool:
        """Whether `admit` waits."""
        return not self._throttled.isdisjoint(tables)

    async def admit(self, tables: Sequence[ObjectId]) -> None:
        """Returns when a writer of these tables may proceed. Cancel safety: nothing is locked or written yet."""
        if not self.delays(tables):
            return
        begun = monotonic()
        self._metrics.writes_throttled.inc()
        try:
            async with asyncio.timeout(self._delay_s):
                while not self._throttled.isdisjoint(tables):
                    await self._moved.wait()
        except TimeoutError:
            pass
        finally:
            self._metrics.throttled_seconds.inc(monotonic() - begun)
