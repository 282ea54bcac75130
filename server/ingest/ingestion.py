"""The ingestion of one source: a task that copies changes from an external system to the source's collections."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum

import structlog

from catalog import source_state
from catalog.ids import ObjectId
from catalog.store import MustEnd
from protocol.pgwire.errors import PgError
from server.coordinator.committer import Conflict, Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import prepare_payloads
from server.coordinator.upstream_times import AheadOfClock
from server.ingest.upstream import Changes, Upstream, UpstreamError
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.threads import to_the_end

READ_BYTES_MAX = 8 * 1024 * 1024  # of changes read at once; bounds the memory of a source
READERS_TURNS = 5  # of the event loop, from a commit until the sockets of subscribers have its changes
RETRY_S = 0.5  # pause before the first retry; it doubles with each further one
RETRY_S_MAX = 30.0

log = structlog.get_logger()


class Status(StrEnum):
    """The status of a source. STALLED: its external system cannot be read, and reading is retried. FAILED: it ended."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    FAILED = "failed"


class Ingestion:
    """Copies changes from `upstream` to the collections of `source`, exactly once. `run` is its task."""

    def __init__(
        self, source: ObjectId, upstream: Upstream, coordinator: Coordinator, *, retry_s: float = RETRY_S
    ) -> None:
        self.source = source
        self.status = Status.STARTING
        self.error: PgError | UpstreamError | None = None
        """The reason of STALLED or FAILED."""
        self.rows = 0
        """Rows or changes committed since the start."""
        self.status_changed_us = _now_us()
        """When the status changed, in microseconds since 1970."""
        self._upstream = upstream
        self._coordinator = coordinator
        self._retry_s = retry_s

    async def run(self) -> None:
        """Runs until cancelled, until the source is dropped, or until it FAILED. Cancel safety: see `server.ingest`."""
        retry_s = self._retry_s
        while self.source in self._coordinator.state.items:
            rows = self.rows
            try:
                await self._copy()
            except PgError as error:
                if self.source in self._coordinator.state.items:
                    self._report(Status.FAILED, error)
                return
            except MustEnd:
                raise  # the server ends, too
            except Conflict:
                pass  # the source or one of its collections was dropped
            except Exception as error:
                raise_if_cancelled()
                self._report(Status.STALLED, error if isinstance(error, UpstreamError) else UpstreamError(str(error)))
            retry_s = self._retry_s if self.rows > rows else min(2 * retry_s, RETRY_S_MAX)
            await asyncio.sleep(retry_s)

    async def _copy(self) -> None:
        """Opens the upstream at the committed state and copies changes until an error."""
        try:
            await self._upstream.open(source_state.load(self._coordinator.store, self.source))
            if self.status is Status.STARTING:
                self._report(Status.RUNNING, None)
            while True:
                changes = await self._upstream.read(READ_BYTES_MAX)
                await self._commit(changes)
                self._report(Status.RUNNING, None)
                await _readers_first()
                await self._upstream.committed(changes.state)
        finally:
            await self._upstream.close()

    async def _commit(self, changes: Changes) -> None:
        """Commits the changes and the state after them in one transaction.

        Cancel safety: a request that is queued is committed before CancelledError is raised. Another ingestion of the
        source can then load its state.
        """
        coordinator = self._coordinator
        if changes.closed:
            await self._commit_at_upstream_times(changes)
            return
        with coordinator.log.discarding(payload for _, payload in changes.payloads):
            await coordinator.backpressure.admit(tuple({*changes.writes, *(id for id, _ in changes.payloads)}))
            payloads = [*changes.payloads, *await prepare_payloads(coordinator.log, changes.writes)]
        state = {self.source: changes.state}

        async def commit() -> None:
            failing = {id for id in changes.errors if coordinator.errors.latest(id) is not None}
            request = Request(writes=payloads, unchanged=changes.read_at, source_state=state, errors=changes.errors)
            await coordinator.commit(request)
            for id, error in changes.errors.items():
                if error is not None and id not in failing:
                    log.warning("collection cannot be read", id=id, error=error.message, detail=error.detail)
                elif error is None and id in failing:
                    log.info("collection can be read again", id=id)
            self.rows += sum(payload.table.num_rows for _, payload in payloads)

        await to_the_end(commit())

    async def _commit_at_upstream_times(self, changes: Changes) -> None:
        """UpstreamError if the times of the changes are ahead of the server's clock."""
        ((id, frontier),) = changes.closed.items()
        tables = changes.writes.get(id, [])
        await self._coordinator.backpressure.admit(tuple(changes.writes))
        try:
            await self._coordinator.upstream_times.write(id, self.source, tables, frontier, changes.state)
        except AheadOfClock as error:
            raise UpstreamError(
                f"the times of the source are {error.ahead_ms / 1_000:.0f} s ahead of the server's clock",
                "Times must be milliseconds since 1970. Synchronize the clocks of the servers.",
            ) from None
        self.rows += sum(table.num_rows for table in tables)

    def _report(self, status: Status, error: PgError | UpstreamError | None) -> None:
        if (status, str(error)) != (self.status, str(self.error)):
            self.status_changed_us = _now_us()
            if error is not None:
                log.warning(f"source {status}", source=self.source, error=error.message, hint=error.hint)
            else:
                log.info(f"source {status}", source=self.source)
        self.status, self.error = status, error


async def _readers_first() -> None:
    """Lets the tasks that the commit has woken run: those that send its changes to subscribers."""
    for _ in range(READERS_TURNS):
        await asyncio.sleep(0)


def _now_us() -> int:
    return time.time_ns() // 1_000
