"""The sink of a materialized view's dataflow: the view's log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pyarrow as pa

from catalog import updates
from catalog.ids import Timestamp
from catalog.objects.views import MaterializedView
from protocol.pgwire.errors import PgError
from server.coordinator.log_writer import LogWriter
from server.coordinator.snapshot_cache import SnapshotCache
from server.timeline.frontiers import Frontiers


class LogSink:
    """Writes the changes of a materialized view to its log. `upper` is that of the view."""

    retries = True
    awaited = None

    def __init__(
        self,
        view: MaterializedView,
        writer: LogWriter,
        snapshots: SnapshotCache,
        frontiers: Frontiers,
        on_failure: Callable[[MaterializedView, PgError], None],
    ) -> None:
        self._view = view
        self._writer = writer
        self._snapshots = snapshots
        self._frontiers = frontiers
        self._on_failure = on_failure
        # A view that was never computed has no history: since = upper = the time of its creation.
        self.is_new = frontiers.floors[view.id] == self.upper

    @property
    def upper(self) -> Timestamp:
        return self._frontiers.upper(self._view.id)

    def first_time(self, time: Timestamp) -> Timestamp:
        """As `Sink.first_time`: the log continues at its end."""
        return time

    async def rows(self) -> pa.Table | None:
        """As `Sink.rows`."""
        return None if self.is_new else await self._snapshots.rows(self._view, self.upper - 1)

    async def begin(self, time: Timestamp, rows: pa.Table, stored: pa.Table | None) -> None:
        """As `Sink.begin`. Writes nothing if the log ends at `time`."""
        old = rows.slice(0, 0) if stored is None else stored
        changes = await asyncio.to_thread(updates.difference, rows, old)
        if changes.num_rows:
            await self.write([(max(time, self.upper), changes)])
        else:
            self.advance(max(Timestamp(time + 1), self.upper))

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        """As `Sink.write`."""
        await self._writer.write(self._view.id, changes)
        self.is_new = False

    def advance(self, upper: Timestamp) -> None:
        """As `Sink.advance`."""
        self._writer.advance(self._view.id, upper)
        self.is_new = False

    def failed(self, error: PgError, upper: Timestamp) -> None:
        """As `Sink.failed`."""
        self._on_failure(self._view, error)

    def close(self) -> None:
        """As `Sink.close`. The log remains."""
