"""The dataflow of a materialized view. It writes its updates to the log, at the times of the commits that caused them.

An index of computed rows has the same kind of dataflow. Its updates are inserted into an arrangement, which is computed
again after a restart.

After a restart the dataflow continues where the view's log ends and never repeats an update: it is hydrated at the last
time in the log. At a time at which the query fails (for example with a division by zero) the view's `upper` does not
advance: `error` has the reason, subscriptions to the view end, and the next change of an input retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow as pa
import structlog

from catalog import updates
from catalog.objects import Index, MaterializedView, ObjectId, Timestamp
from catalog.store import MustEnd
from protocol.pgwire.errors import PgError
from server.dataflow.runtime.computation import Computation, Ticks, advanced
from server.dataflow.runtime.failed_plan import FailedPlan
from server.dataflow.runtime.hydration import watched
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.errors import to_pg_error
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers

log = structlog.get_logger()

# Writes changes at a time to the view's log and advances its upper; with None only the upper.
Write = Callable[[Timestamp, pa.Table | None, Timestamp], Awaitable[None]]


class ViewDataflow:
    """Maintains one materialized view or computed index. `run` is its task."""

    def __init__(
        self,
        view: MaterializedView | Index,
        computation: Computation,
        frontiers: Frontiers,
        stored: Callable[[Timestamp], Awaitable[pa.Table]],
        write: Write,
        failed: Callable[[PgError], None],
        keeps_too_much: Callable[[ViewDataflow], bool],
        metrics: Metrics | None = None,
        begin: Callable[[], Timestamp] | None = None,
    ) -> None:
        """`stored` returns the view's own rows at a time. `failed` is called with the error while the view fails.

        `keeps_too_much`: whether the dataflow lags too far behind its inputs. `metrics`: the server's.
        `begin`: only for an index, which has no rows after a restart: its `since`, the first time to compute.
        """
        self.view = view
        self.error: PgError | None = None
        self.computation = computation
        self._frontiers = frontiers
        self._stored = stored
        self._write = write
        self._tell_failed = failed
        self._keeps_too_much = keeps_too_much
        # A view that was never computed has no history: since = upper = the time of its creation.
        self._fresh = begin is not None or frontiers.floors[view.id] == frontiers.upper(view.id)
        self._begin = begin
        if begin is None:
            # The inputs' history from `start` on is still there: it was held for this dataflow until the server ended.
            inputs = [id for id in computation.inputs if id in frontiers.floors]
            start = Timestamp(frontiers.upper(view.id) - (0 if self._fresh else 1))
            start = max([start, *(frontiers.floors[id] for id in inputs)])
            self._holder = frontiers.take_over(inputs, start)
        else:  # the logs of the inputs begin at the index's `since` or earlier, even if their own `since` is later
            start = frontiers.since(view.id)
            self._holder = frontiers.take_over(computation.inputs, start)
        self.task: asyncio.Task[None] | None = None
        self._metrics = metrics or Metrics()
        self.ticks = Ticks(self._metrics.step_seconds)
        self.hydrated = False
        self.seen = frontiers.upper(view.id) if begin is None else start
        """The first time that was not processed yet. `error` applies to times before it."""

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self.computation.inputs

    @property
    def upper(self) -> Timestamp:
        return self._frontiers.upper(self.view.id)

    @property
    def next_time(self) -> Timestamp:
        """Changes of the inputs at this time and later are held, earlier ones are not."""
        return Timestamp(self._holder.time + 1)

    @property
    def can_catch_up(self) -> bool:
        return self.hydrated and self.error is None

    async def run(self) -> None:
        """Runs until cancelled. Cancel safety: a write is complete or absent; the hold on the inputs is released."""
        try:
            await self._hydrate(self._holder.time)
            while True:
                await self._frontiers.reached(self.inputs, self.seen)
                upper = self._frontiers.least_upper(self.inputs)
                while times := self.computation.times(self.seen, upper):
                    async for time, changes in advanced(self.computation, times, self._present, self.ticks):
                        if isinstance(changes, Exception):
                            self._failed(changes, time)
                        else:
                            await self._record(time, changes, Timestamp(time + 1))
                            self._worked(time)
                self.seen = upper
                if self.error is None:
                    await self._write(upper, None, upper)
                    self._holder.advance(upper - 1)
                else:
                    self._stays(self.error)
                    if self._keeps_too_much(self):
                        await self._hydrate_again()
        finally:
            self._holder.release()
            self.computation.close()

    async def _hydrate_again(self) -> None:
        """Releases the history that is held while the query fails. Hydrates again at the next change of an input."""
        log.warning("materialized view that fails lets go of its inputs' history", view=self.view.name, id=self.view.id)
        self.hydrated = False
        self.computation.close()
        self._holder.advance(self.seen)
        await self._hydrate(await self._next_change())

    async def _present(self) -> pa.Table:
        return await self._stored(Timestamp(self.upper - 1))

    async def _hydrate(self, time: Timestamp) -> None:
        """Hydrates at `time`, or at the first later change at which the query does not fail."""
        while True:
            self._holder.advance(time)
            await self._frontiers.reached(self.computation.inputs, time)
            if self._fresh and self._begin is not None and (begin := self._begin()) > time:
                time = begin
                self._holder.advance(time)
            try:
                if isinstance(self.computation, FailedPlan):
                    self.computation = self.computation.plan()
                stored = None if self._fresh else await self._present()
                known = stored if time == self.upper - 1 else None
                dataflow = {"dataflow": self.view.id, "view": self.view.name}
                async with watched(self.computation.hydration, time, self._metrics, **dataflow):
                    rows = await self.computation.hydrate(time, known)
                break
            except Exception as error:
                raise_if_cancelled()
                self._failed(error, time)
            time = await self._next_change()
        # Empty, unless the view has no log yet or its log ends before `time`.
        changes = await asyncio.to_thread(updates.difference, rows, rows.slice(0, 0) if stored is None else stored)
        upper = self.upper if self._begin is None else time
        await self._record(max(time, upper), changes, Timestamp(max(time + 1, upper)))
        self._worked(time)
        self._fresh = False
        self.hydrated = True

    async def _record(self, time: Timestamp, changes: pa.Table, upper: Timestamp) -> None:
        """Writes changes to the log. Retries after an error when a frontier advances, as a full disk may have room."""
        while True:
            try:
                return await self._write(time, changes if changes.num_rows else None, upper)
            except MustEnd:
                raise  # the server ends, too
            except Exception as error:
                raise_if_cancelled()
                log.error(f"{self.view.kind} not written", view=self.view.name, id=self.view.id, error=str(error))
            await self._frontiers.moved.wait()

    async def _next_change(self) -> Timestamp:
        """The first time at or after `seen` at which an input changes."""
        inputs = self.computation.inputs
        while True:
            await self._frontiers.reached(inputs, self.seen)
            upper = self._frontiers.least_upper(inputs)
            if times := self.computation.times(self.seen, upper):
                return times[0]
            self.seen = upper
            self._holder.advance(upper - 1)  # there is no state that needs the history before
            if self.error is not None:
                self._stays(self.error)

    def _worked(self, time: Timestamp) -> None:
        self.error = None
        self.seen = Timestamp(time + 1)
        self._holder.advance(time)

    def _failed(self, error: Exception, time: Timestamp) -> None:
        if self.error is None:
            log.warning(f"{self.view.kind} failed", view=self.view.name, id=self.view.id, error=str(error))
        self.error = to_pg_error(error)
        self.seen = Timestamp(max(self.seen, time + 1))
        self._stays(self.error)

    def _stays(self, error: PgError) -> None:
        """Reports that the view does not advance before an input changes, and wakes tasks that wait for frontiers."""
        self._tell_failed(error)
        self._frontiers.moved.fire()
