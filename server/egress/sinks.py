"""The sinks of the catalog, each with a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic

import structlog

from catalog import source_state
from catalog.ids import ObjectId, Timestamp
from catalog.objects.sinks import Sink
from protocol.pgwire.errors import PgError
from server.coordinator.coordinator import Coordinator
from server.coordinator.tasks import BackgroundTasks
from server.egress.kinds import KINDS
from server.egress.sink_task import AS_OF, PROGRESS_S, RETRY_S, SinkTask, held_from
from server.ingest.upstream import UpstreamError

DROP_TIMEOUT_S = 60.0  # how long a dropped sink may take to remove what it stored in the external system

log = structlog.get_logger()


class Sinks:
    """Starts the task of each sink when it is created, and at `start`. A task ends when its sink is dropped."""

    def __init__(self, coordinator: Coordinator, *, progress_s: float = PROGRESS_S) -> None:
        self._coordinator = coordinator
        self._progress_s = progress_s
        self._running: dict[ObjectId, SinkTask] = {}
        self._task_of: dict[ObjectId, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()

    @property
    def running(self) -> Mapping[ObjectId, SinkTask]:
        return self._running

    def hold(self) -> None:
        """Takes the holds of all sinks at their frontiers. Called before any `since` advances."""
        frontiers = self._coordinator.frontiers
        for sink in self._coordinator.state.items_of(Sink):
            time = held_from(source_state.load(self._coordinator.store, sink.id))
            if time is None and AS_OF in sink.options:
                time = Timestamp(int(sink.options[AS_OF]))
            if time is not None:
                floor = frontiers.floors[sink.on]  # not after `time`, or the task reports that history is missing
                holder = frontiers.hold_history((sink.on,), max(time, floor))
                self._running[sink.id] = SinkTask(sink, self._coordinator, holder, progress_s=self._progress_s)

    def start(self) -> None:
        for running in self._running.values():
            self._start(running)
        self._coordinator.catalog_changed.append(self._catalog_changed)
        self._catalog_changed()

    async def close(self) -> None:
        """Stops the tasks and waits for them."""
        if self._catalog_changed in self._coordinator.catalog_changed:
            self._coordinator.catalog_changed.remove(self._catalog_changed)
        await self._tasks.stop()

    def _catalog_changed(self) -> None:
        coordinator = self._coordinator
        for sink in coordinator.state.items_of(Sink):
            if sink.id not in self._running:
                # The transaction of CREATE SINK holds the time of AS OF until now.
                time = int(sink.options.get(AS_OF, coordinator.latest_time()))
                holder = coordinator.frontiers.hold((sink.on,), time)
                running = SinkTask(sink, coordinator, holder, progress_s=self._progress_s)
                self._running[sink.id] = running
                self._start(running)
        for id, task in self._task_of.items():
            if id not in coordinator.state.items and not task.cancelling():
                task.cancel()  # once: a second time would interrupt `close`

    def _start(self, running: SinkTask) -> None:
        sink = running.sink
        self._task_of[sink.id] = self._tasks.start(self._run(running), f"sink {sink.name}")

    async def _run(self, running: SinkTask) -> None:
        id = running.sink.id
        try:
            await running.run()
        finally:
            self._running.pop(id, None)
            self._task_of.pop(id, None)
            if id not in self._coordinator.state.items:
                self._tasks.start(_dropped(running), f"dropped sink {running.sink.name}")


async def _dropped(running: SinkTask) -> None:
    """Lets the kind of sink remove what the sink stored in the external system. Repeats it for DROP_TIMEOUT_S."""
    sink, end, retry_s = running.sink, monotonic() + DROP_TIMEOUT_S, RETRY_S
    while True:
        try:
            await asyncio.wait_for(KINDS[sink.system].dropped(running.definition), max(0, end - monotonic()))
            return
        except (PgError, UpstreamError) as error:
            text, hint = error.message, error.hint
        except OSError as error:  # also of the timeout
            text, hint = str(error) or "timeout", None
        if monotonic() + retry_s > end:
            log.warning("dropped sink not cleaned up", sink=sink.id, error=text, hint=hint)
            return
        await asyncio.sleep(retry_s)
        retry_s *= 2
