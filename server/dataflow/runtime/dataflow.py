"""Dataflows: each maintains one query and writes its changes to a sink, at the times of the commits that caused them.

A dataflow hydrates its computation at the sink's first time, then follows the `upper` of its inputs:

    for t in computation.times(processed_upper, upper):  sink.write(t, rows(t) - rows(t')), where t' is the time before
    processed_upper = upper;  sink.advance(upper), unless the query fails

After a step it pauses if commits follow each other fast (`commit_rate`). After a large step, which drops the state, the
computation restores it in the background. When the dataflow has processed everything, it rests until a change that may
concern it is about to become visible (`resting`).

Guarantees:

- The sink gets every time at most once, in ascending order, and never a change at a time before `sink.upper`. A sink
  that survives a crash (the log) therefore never repeats an update: the dataflow continues at `sink.upper - 1`.
- The history of the inputs is held from `next_time - 1` on, a time that the sink already has. A step that fails, is
  cancelled or is lost in a crash can be computed again from there.
- The query may fail at a time (for example with a division by zero). A sink that does not retry ends with the error.
  Otherwise the sink's `upper` stops, `error` has the reason, and the next change of an input retries. If the held
  history grows too large meanwhile, the dataflow releases it and hydrates again at that change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

import pyarrow as pa
import structlog

from catalog.ids import ObjectId, Timestamp
from catalog.objects.indexes import Index
from catalog.objects.views import MaterializedView
from catalog.store import MustEnd
from protocol.pgwire.errors import PgError
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime.commit_rate import CommitRate, pause
from server.dataflow.runtime.computation import Computation, StepDurations, advanced
from server.dataflow.runtime.hydration import watched
from server.dataflow.runtime.resting import Resting
from server.dataflow.runtime.unplanned import Unplanned
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.errors import to_pg_error
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers, Holder

log = structlog.get_logger()


class Sink(Protocol):
    """Receives the rows of a query at one time, then its changes. Only its dataflow writes to it."""

    retries: bool
    """Whether the dataflow continues after an error, of the query or of a write."""

    @property
    def awaited(self) -> asyncio.Event | None:
        """A reader that waits for `upper` sets it, which ends a pause. None if readers need each change at once."""
        ...

    @property
    def upper(self) -> Timestamp:
        """The rows at times before it are complete."""
        ...

    def first_time(self, time: Timestamp) -> Timestamp:
        """The time at which to hydrate: `time`, or a later one if the sink needs no earlier rows."""
        ...

    async def rows(self) -> pa.Table | None:
        """The rows at `upper - 1`. None if nothing was written yet."""
        ...

    async def begin(self, time: Timestamp, rows: pa.Table, stored: pa.Table | None) -> None:
        """Makes `rows` the rows at `time`. `stored`: what `rows()` returned. Sets `upper` to at least `time + 1`."""
        ...

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        """Applies changes at ascending times from `upper` on; at least one at each. All or nothing.

        Sets `upper` to the time after the last one.
        """
        ...

    def advance(self, upper: Timestamp) -> None:
        """Called when no further change is at a time before `upper`. Advances the sink's `upper`."""
        ...

    def failed(self, error: PgError, upper: Timestamp) -> None:
        """Called while the query fails, if no change of an input before `upper` has removed the cause."""
        ...

    def close(self) -> None:
        """Called when the dataflow has ended."""
        ...


class Dataflow:
    """Maintains one query. `run` is its task."""

    def __init__(
        self,
        id: str,
        computation: Computation,
        sink: Sink,
        frontiers: Frontiers,
        holder: Holder,
        metrics: Metrics,
        *,
        item: MaterializedView | Index | None = None,
        holds_too_much: Callable[[Dataflow], bool] = lambda _: False,
        resting: Resting | None = None,
    ) -> None:
        """`holder` keeps the inputs from the time on at which to hydrate. The dataflow advances and releases it.

        `item`: the object that the dataflow maintains, None for a subscribed query. `holds_too_much`: whether the
        history that the dataflow holds is too large to be kept while its query fails. `resting`: what wakes the
        dataflow; None if it never rests, and instead wakes whenever a frontier advances.
        """
        self.id = id
        self.item = item
        self.computation = computation
        self.sink = sink
        self.steps = StepDurations(metrics.step_seconds)
        self.hydrated = False
        self.error: PgError | None = None
        self.processed_upper = max(sink.upper, holder.time)
        """All times before it have been processed. `error` applies to the times since `sink.upper`."""
        self._frontiers = frontiers
        self._holder = holder
        self._rate = CommitRate(monotonic())
        self._restoring_holder: Holder | None = None  # while the state is being restored
        self._metrics = metrics
        self._holds_too_much = holds_too_much
        self._resting = resting
        self._rest: asyncio.Future[None] | None = None  # done when the dataflow wakes; None if it is awake
        self._kind = "query" if item is None else item.kind
        self._log = log.bind(id=id) if item is None else log.bind(view=item.name, id=id)

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self.computation.inputs

    @property
    def holder(self) -> Holder:
        """Keeps the history of the inputs that the dataflow needs."""
        return self._holder

    @property
    def upper(self) -> Timestamp:
        return self.sink.upper

    @property
    def next_time(self) -> Timestamp:
        """The changes of the inputs at this time and later are held, earlier ones are not."""
        holders = (self._holder, self._restoring_holder)
        return Timestamp(min(holder.time for holder in holders if holder is not None) + 1)

    @property
    def can_catch_up(self) -> bool:
        return self.hydrated and self.error is None

    async def run(self) -> None:
        """Runs until cancelled, or until an error if the sink does not retry.

        Cancel safety: a write is complete or absent; the holds on the inputs are released.
        """
        try:
            await self._hydrate(self._holder.time)
            while True:
                if self._may_rest:
                    await self._rested()
                await self._frontiers.reached(self.inputs, self.processed_upper)
                begun = monotonic()
                taken = await self._catch_up(self._frontiers.least_upper(self.inputs))
                self._rate.add(taken, monotonic())
                await self._pause_after_step(monotonic() - begun)
        except Exception as error:
            if self.sink.retries:
                raise
            self.error = to_pg_error(error)
            self.sink.failed(self.error, self.processed_upper)
        finally:
            self.close()
            await self.computation.closed()

    async def _pause_after_step(self, duration_s: float) -> None:
        """Waits if an input has changed meanwhile (`CommitRate.pause_s`), or if no reader needs the next step yet."""
        upper, awaited = self._frontiers.least_upper(self.inputs), self.sink.awaited
        waiting = len(self.computation.times(self.processed_upper, upper))
        if awaited is not None:
            await pause(self._rate.unread_pause_s(duration_s, waiting), awaited)
        elif pause_s := self._rate.pause_s(duration_s, waiting):
            await asyncio.sleep(pause_s)

    @property
    def is_resting(self) -> bool:
        return self._rest is not None

    @property
    def derives_upper(self) -> bool:
        return isinstance(self.item, MaterializedView)

    @property
    def relevant(self) -> Mapping[ObjectId, Sequence[KeyValues]]:
        return self.computation.relevant

    @property
    def _may_rest(self) -> bool:
        """Whether every change of an input has been processed, also those beyond the least `upper`."""
        frontiers = self._frontiers
        return (
            self._resting is not None
            and self.error is None
            and self.computation.next_time is None
            and bool(self.inputs)
            and self.inputs <= frontiers.floors.keys()
            and self.processed_upper == frontiers.least_upper(self.inputs)
            and not self.computation.times(self.processed_upper, max(map(frontiers.upper, self.inputs)))
        )

    async def _rested(self) -> None:
        """Rests. Returns when a change that may concern the dataflow is about to become visible."""
        assert self._resting is not None
        self._resting.add(self)
        self._rest = rest = asyncio.get_running_loop().create_future()
        self._holder.follow(self.inputs)
        if self.item is not None and self.derives_upper:
            self._frontiers.follow(self.item.id, self.inputs)
        await rest

    def wake(self) -> None:
        """Ends the rest, if it rests, at the current `upper` of the inputs."""
        if self._rest is None:
            return
        rest, self._rest = self._rest, None
        self.processed_upper = self._frontiers.least_upper(self.inputs)
        self._holder.follow(None)
        if self.item is not None:
            self._frontiers.stop_following(self.item.id)
        self.computation.pass_to(Timestamp(self.processed_upper - 1))
        if not rest.done():
            rest.set_result(None)

    def close_times(self) -> None:
        """Advances the sink to the least `upper` of the inputs, if it rests and its `upper` is not derived."""
        if self.is_resting and not self.derives_upper:
            self.sink.advance(self._frontiers.least_upper(self.inputs))

    def close(self) -> None:
        """Releases the inputs and the state. Idempotent. For a task that was cancelled before `run` began."""
        if self._resting is not None:
            self._resting.remove(self)
        self.wake()
        self.hydrated = False
        self._holder.release()
        self.computation.close()
        self.sink.close()

    async def _catch_up(self, upper: Timestamp) -> int:
        """Processes the changes before `upper`. Returns the number of their timestamps."""
        taken = 0
        while times := self.computation.times(self.processed_upper, upper):
            async for step_times, found in advanced(self.computation, times, self._rows, self.steps):
                taken += len(step_times)
                if isinstance(found, Exception):
                    if self.error is None:
                        self.sink.advance(step_times[0])
                    self._query_failed(found, step_times[0])
                else:
                    await self._write(step_times, found)
                    self._query_succeeded(step_times[-1])
                    self.computation.restore_state(self._held_for_state, self._not_restored)
        self.processed_upper = upper
        if self.error is None:
            self.sink.advance(upper)
            self._holder.advance(upper - 1)
        else:
            self._still_fails(self.error)
            if self._holds_too_much(self):
                await self._release_history()
        return taken

    async def _hydrate(self, time: Timestamp) -> None:
        """Hydrates at `time`, or at the first later change at which the query does not fail."""
        while True:
            self._holder.advance(time)
            await self._frontiers.reached(self.inputs, time)
            time = self.sink.first_time(time)
            self._holder.advance(time)
            try:
                if isinstance(self.computation, Unplanned):
                    self.computation = await self.computation.plan()
                stored = await self.sink.rows()
                names = {"dataflow": self.id} | ({"view": self.item.name} if self.item is not None else {})
                async with watched(self.computation.hydration, time, self._metrics, **names):
                    rows = await self.computation.hydrate(time, stored if time == self.upper - 1 else None)
                break
            except Exception as error:
                raise_if_cancelled()
                self._query_failed(error, time)
            time = await self._next_change()
        await self._written(lambda: self.sink.begin(time, rows, stored))
        self._query_succeeded(time)
        self.hydrated = True

    @contextmanager
    def _held_for_state(self) -> Iterator[Holder]:
        """Holds the history that is held now."""
        holder = self._restoring_holder = self._frontiers.copy_of(self._holder)
        try:
            yield holder
        finally:
            holder.release()
            self._restoring_holder = None

    def _not_restored(self, error: Exception) -> None:
        self._log.warning(f"state of {self._kind} not restored", error=str(error))

    async def _release_history(self) -> None:
        """Releases the history that is held while the query fails. Hydrates again at the next change of an input."""
        self._log.warning(f"{self._kind} fails: history of its inputs released")
        self.hydrated = False
        self.computation.close()
        self._holder.advance(self.processed_upper)
        await self._hydrate(await self._next_change())

    async def _next_change(self) -> Timestamp:
        """The first time at or after `processed_upper` at which an input changes. There is no state meanwhile."""
        while True:
            await self._frontiers.reached(self.inputs, self.processed_upper)
            upper = self._frontiers.least_upper(self.inputs)
            if times := self.computation.times(self.processed_upper, upper):
                return times[0]
            self.processed_upper = upper
            self._holder.advance(upper - 1)
            if self.error is not None:
                self._still_fails(self.error)

    async def _rows(self) -> pa.Table:
        rows = await self.sink.rows()
        assert rows is not None
        return rows

    async def _write(self, times: Sequence[Timestamp], found: Sequence[pa.Table]) -> None:
        """Writes the changes of a step, those at each of its times. They are written together: a lagging view would
        otherwise wait for the disk once for each time."""
        changes = [(time, table) for time, table in zip(times, found, strict=True) if table.num_rows]
        if changes:
            await self._written(lambda: self.sink.write(changes))
        self.sink.advance(Timestamp(times[-1] + 1))

    async def _written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Writes. Retries after an error when a frontier advances: a full disk may have room then."""
        while True:
            try:
                return await write()
            except MustEnd:
                raise  # the server ends, too
            except Exception as error:
                raise_if_cancelled()
                if not self.sink.retries:
                    raise
                self._log.error(f"{self._kind} not written", error=str(error))
            await self._frontiers.moved.wait()

    def _query_succeeded(self, time: Timestamp) -> None:
        self.error = None
        self.processed_upper = Timestamp(time + 1)
        self._holder.advance(time)

    def _query_failed(self, error: Exception, time: Timestamp) -> None:
        if not self.sink.retries:
            raise error
        if self.error is None:
            self._log.warning(f"{self._kind} failed", error=str(error))
        self.error = to_pg_error(error)
        self.processed_upper = Timestamp(max(self.processed_upper, time + 1))
        self._still_fails(self.error)

    def _still_fails(self, error: PgError) -> None:
        """Reports that the sink does not advance before an input changes, and wakes tasks that wait for frontiers."""
        self.sink.failed(error, self.processed_upper)
        self._frontiers.moved.fire()
