"""How far dataflows are behind what they read, and writers who wait until they have caught up.

What a dataflow has not taken is kept: batches in the log, updates in arrangements that it shares. A dataflow that is
slower than the writers would let that grow without end, so a writer of what it reads, directly or by way of
materialized views, waits once the dataflow is too far behind, before he takes a lock or a timestamp. Not for ever: each
write waits at most `delay_s`, so writers go on, slowly, though Spark may be away or a tick take an hour. Dataflows that
are yet to have their first rows, and views that fail, hold nobody back: these do not get on by waiting.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import structlog

from catalog.log import Batch, Payload
from catalog.objects import ObjectId, Timestamp
from server.counts import Counts
from server.frontiers import Pulse

COMMIT_BYTES = 4096  # of memory that a commit takes beside its rows, as long as it is kept
TRIMMED = 1_024  # sizes that nobody needs are let go of when there are so many

log = structlog.get_logger()


class Dataflow(Protocol):
    """What is looked at of a materialized view's dataflow or a query's."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def next_time(self) -> Timestamp:
        """It has taken what happened before."""
        ...

    @property
    def can_catch_up(self) -> bool:
        """Whether it takes what comes, in time."""
        ...


@dataclass(frozen=True, slots=True)
class Lag:
    """What a dataflow has not taken. `weight`: bytes in memory or on disk."""

    commits: int = 0
    bytes: int = 0

    @property
    def weight(self) -> int:
        return self.bytes + self.commits * COMMIT_BYTES

    def __add__(self, other: Lag) -> Lag:
        return Lag(self.commits + other.commits, self.bytes + other.bytes)


@dataclass(slots=True)
class _Written:
    """The commits to one collection: their times, and the bytes up to and with each."""

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
        if first >= TRIMMED:
            self.start = self.ends[first - 1]
            del self.times[:first], self.ends[:first]


class Backpressure:
    """Told of dataflows by `begins`, of commits by `written`; `look` judges, and writers pass by `admit`."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._written: dict[ObjectId, _Written] = {}
        self._held: frozenset[ObjectId] = frozenset()
        self._delay_s = 0.0
        self._moved = Pulse()
        self.too_far: frozenset[str] = frozenset()
        """The dataflows that hold writers back, as the last look found them."""

    def begins(self, flow: Dataflow) -> None:
        """From now on it counts what is written to its inputs."""
        for id in flow.inputs:
            self._written.setdefault(id, _Written())

    def written(self, batches: Iterable[tuple[Batch, Payload]]) -> None:
        """A commit, to a table or a materialized view."""
        for batch, _ in batches:
            if (written := self._written.get(batch.collection)) is not None:
                written.add(batch.time, batch.bytes)

    def lag(self, flow: Dataflow) -> Lag:
        """What was written to its inputs since a dataflow over them began."""
        return sum((self._written[id].since(flow.next_time) for id in flow.inputs if id in self._written), Lag())

    def look(
        self,
        flows: Mapping[str, Dataflow],
        sources: Mapping[ObjectId, frozenset[ObjectId]],
        weight_max: int,
        delay_s: float,
    ) -> None:
        """Says who waits until the next look. `sources`: what each materialized view reads.

        `weight_max`: what a dataflow may be behind; 0: nobody waits.
        """
        needed: dict[ObjectId, Timestamp] = {}
        too_far: dict[str, Lag] = {}
        held: set[ObjectId] = set()
        for name, flow in flows.items():
            for id in flow.inputs:
                needed[id] = min(needed.get(id, flow.next_time), flow.next_time)
            if weight_max and flow.can_catch_up and (lag := self.lag(flow)).weight > weight_max:
                too_far[name] = lag
                held |= flow.inputs
        for id in self._written.keys() - needed.keys():
            del self._written[id]
        for id, time in needed.items():
            if id in self._written:
                self._written[id].forget(time)
        queue = list(held)
        while queue:
            more = sources.get(queue.pop(), frozenset()) - held
            held |= more
            queue += more
        for name, lag in too_far.items():
            if name not in self.too_far:
                log.warning("writers wait for a dataflow", dataflow=name, commits=lag.commits, bytes=lag.bytes)
        for name in self.too_far - too_far.keys():
            log.info("writers no longer wait for a dataflow", dataflow=name)
        self.too_far = frozenset(too_far)
        self._delay_s = delay_s
        if held != self._held:
            self._held = frozenset(held)
            self._moved.fire()

    async def admit(self, tables: Sequence[ObjectId]) -> None:
        """Returns when a writer of these may go on. Cancel safety: he has not begun."""
        if self._held.isdisjoint(tables):
            return
        begun = monotonic()
        self._counts.writes_throttled += 1
        try:
            async with asyncio.timeout(self._delay_s):
                while not self._held.isdisjoint(tables):
                    await self._moved.wait()
        except TimeoutError:
            pass
        finally:
            self._counts.throttled_s += monotonic() - begun
