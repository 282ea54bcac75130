"""The dataflow of a materialized view: its changes go to the log, each at the time of the commit that caused it.

What is subtracted is what the log holds, so a restart continues where the log ends and never repeats an update. A
time at which the query fails (a division by zero, say) moves nothing: the view stays where it is, `error` tells its
readers why (its subscribers' streams end), and the next change of an input tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow as pa
import structlog

from catalog import updates
from catalog.objects import MaterializedView, ObjectId, Timestamp
from catalog.store import MustEnd
from protocol.pgwire.errors import PgError
from server.dataflow.feed import Computation
from server.failures import told
from server.frontiers import Frontiers

log = structlog.get_logger()

# Writes changes at a time to the view's log, and moves its upper; None: only the upper.
Write = Callable[[Timestamp, pa.Table | None, Timestamp], Awaitable[None]]


class ViewDataflow:
    """Keeps one materialized view. `run` is its task."""

    def __init__(
        self,
        view: MaterializedView,
        computation: Computation,
        frontiers: Frontiers,
        stored: Callable[[Timestamp], Awaitable[pa.Table]],
        write: Write,
        failed: Callable[[MaterializedView, PgError], None],
    ) -> None:
        """`stored` reads the view's own rows from the log at a time; `failed` is told as long as it cannot go on."""
        self.view = view
        self.error: PgError | None = None
        self._computation = computation
        self._frontiers = frontiers
        self._stored = stored
        self._write = write
        self._failed = failed
        # A view that was never computed has no history yet: since = upper, the time of its creation.
        self._fresh = frontiers.floors[view.id] == frontiers.upper(view.id)
        self.seen = frontiers.upper(view.id)  # every time before it has been tried: `error` is true of those
        start = frontiers.upper(view.id) - (0 if self._fresh else 1)
        self._holder = frontiers.hold(computation.inputs, max(start, frontiers.greatest_since(computation.inputs)))
        self.task: asyncio.Task[None] | None = None

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self._computation.inputs

    @property
    def upper(self) -> Timestamp:
        return self._frontiers.upper(self.view.id)

    async def run(self) -> None:
        """Until cancelled. Cancel safety: a write is whole or absent; the inputs' history is let go."""
        inputs = self._computation.inputs
        rows = None if self._fresh else await self._stored(Timestamp(self.seen - 1))
        times = [self.seen] if self._fresh else []
        try:
            while True:
                await self._frontiers.reached(inputs, self.seen)
                upper = self._frontiers.least_upper(inputs)
                for time in sorted({*times, *self._computation.change_times(self.seen, upper)}):
                    rows = await self._tick(Timestamp(max(time, self._frontiers.greatest_since(inputs))), rows)
                times, self.seen = [], upper
                self._holder.advance(upper - 1)
                if self.error is None:
                    await self._write(upper, None, upper)
                else:
                    self._failed(self.view, self.error)
                    self._frontiers.moved.fire()
        finally:
            self._holder.release()

    async def _tick(self, time: Timestamp, rows: pa.Table | None) -> pa.Table | None:
        """Brings the view to `time`; returns what the log holds then, which are `rows` if the query fails."""
        new = await self._try(time)
        if new is None:
            return rows
        old = rows if rows is not None else new.slice(0, 0)
        changes = await asyncio.to_thread(updates.difference, new, old)
        while not await self._written(time, changes if changes.num_rows else None):
            await self._frontiers.moved.wait()
        self._holder.advance(time)
        return new

    async def _written(self, time: Timestamp, changes: pa.Table | None) -> bool:
        """Whether the log took the changes. A disk that is full may have room again when time has moved on."""
        try:
            await self._write(time, changes, Timestamp(time + 1))
        except MustEnd:
            raise  # so does the server
        except Exception as error:
            log.error("materialized view not written", view=self.view.name, id=self.view.id, error=str(error))
            return False
        return True

    async def _try(self, time: Timestamp) -> pa.Table | None:
        """The query's rows at `time`; None, and `error`, when it fails there."""
        try:
            rows = await self._computation.rows(time)
        except Exception as error:
            if self.error is None:
                log.warning("materialized view failed", view=self.view.name, id=self.view.id, error=str(error))
            self.error = told(error)
            self._failed(self.view, self.error)
            return None
        self.error = None
        return rows
