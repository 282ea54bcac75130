"""The running sources: an ingestion per source of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from catalog.ids import ObjectId
from catalog.objects.sources import Source
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError
from server.coordinator.coordinator import Coordinator
from server.coordinator.tasks import BackgroundTasks
from server.ingest.decoder_pool import DecoderPool
from server.ingest.definitions import concerned_sources, definition_of, targets_of
from server.ingest.ingestion import Ingestion
from server.ingest.kinds import kind_of
from server.ingest.source_definition import SourceDefinition, Target
from server.ingest.source_kind import SourceContext, Statistics
from server.ingest.upstream import UpstreamError
from server.runtime.threads import to_the_end
from server.spark import Engine

log = structlog.get_logger()

SNAPSHOT_LOG_S = 10.0  # the shortest time between two lines of the log about the snapshot of a source
DROP_TIMEOUT_S = 60.0  # how long a dropped source may take to remove what it created in the external system

_Plan = tuple[SourceDefinition, tuple[Target, ...]]


@dataclass(eq=False)
class RunningSource:
    """A source of the catalog while the server runs. `ingestion` None: its tables are not created yet.

    `statistics` and `earlier_rows` (of the ingestions before the current one) are counted since the server's start.
    """

    id: ObjectId
    statistics: Statistics = field(default_factory=Statistics)
    ingestion: Ingestion | None = None
    earlier_rows: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the catalog has changed in a way that may concern the source."""

    @property
    def rows(self) -> int:
        """Rows or changes committed since the server's start."""
        return self.earlier_rows + (self.ingestion.rows if self.ingestion is not None else 0)


class Sources:
    """Starts an ingestion for each source of the catalog, and stops it when the source is dropped.

    When the definition or the collections of a source change, its ingestion ends and another one continues at the
    committed position. `start` is called when the coordinator has started; `close` before it closes.
    """

    def __init__(self, coordinator: Coordinator, engine: Engine) -> None:
        self._coordinator = coordinator
        self._engine = engine
        self._running: dict[ObjectId, RunningSource] = {}
        self._tasks = BackgroundTasks()
        self._decoders = DecoderPool()
        self._seen = CatalogState({}, {}, {}, 0)  # the catalog at the last call of `_catalog_changed`
        self._starting = asyncio.Lock()

    @property
    def running(self) -> Mapping[ObjectId, RunningSource]:
        return self._running

    def start(self) -> None:
        self._coordinator.catalog_changed.append(self._catalog_changed)
        self._catalog_changed()

    async def close(self) -> None:
        """Stops the ingestions and waits for them."""
        if self._catalog_changed in self._coordinator.catalog_changed:
            self._coordinator.catalog_changed.remove(self._catalog_changed)
        await self._tasks.stop()
        await self._decoders.close()

    def _catalog_changed(self) -> None:
        before, self._seen = self._seen, self._coordinator.state
        for id in concerned_sources(before, self._seen):
            source = self._seen.items.get(id)
            if id in self._running:
                self._running[id].wake.set()
            elif isinstance(source, Source):
                running = self._running[id] = RunningSource(id)
                self._tasks.start(self._run(running), f"source {source.name}")

    def _plan(self, id: ObjectId) -> _Plan | None:
        """The definition and the collections of a source; None if it was dropped."""
        state = self._coordinator.state
        source = state.items.get(id)
        return (definition_of(state, source), targets_of(state, source)) if isinstance(source, Source) else None

    async def _run(self, running: RunningSource) -> None:
        """Ingests until the source is dropped."""
        last: _Plan | None = None
        try:
            async with self._starting:
                await asyncio.sleep(0)  # the start of many sources must not delay other sessions
            while (plan := self._plan(running.id)) is not None:
                last = plan
                await self._ingest(running, plan)
        finally:
            self._running.pop(running.id, None)
        if last is not None:
            await self._dropped(running.id, last[0])

    async def _ingest(self, running: RunningSource, plan: _Plan) -> None:
        """Ingests until the definition or the collections of the source change, also if the ingestion ends before."""
        definition, targets = plan
        if not targets:
            await self._plan_changed(running, plan)
            return
        running.statistics.errors.clear()
        running.statistics.histories.clear()
        running.statistics.stalls.clear()
        context = SourceContext(running.id, self._coordinator, self._engine, running.statistics, self._decoders)
        upstream = kind_of(definition.kind).upstream(definition, targets, context)
        running.ingestion = ingestion = Ingestion(running.id, upstream, self._coordinator)
        log.info("source started", source=running.id, kind=definition.kind, collections=len(targets))
        task = asyncio.create_task(ingestion.run(), name=f"ingestion {running.id}")
        progress = asyncio.create_task(_log_snapshot(running), name=f"snapshot log {running.id}")
        try:
            await self._plan_changed(running, plan)
        finally:
            progress.cancel()
            task.cancel()
            await to_the_end(_ended(task))
            running.earlier_rows, running.ingestion = running.rows, None

    async def _plan_changed(self, running: RunningSource, plan: _Plan) -> None:
        while self._plan(running.id) == plan:
            await running.wake.wait()
            running.wake.clear()

    async def _dropped(self, id: ObjectId, definition: SourceDefinition) -> None:
        """Lets the kind of source remove what it created in the external system."""
        try:
            await asyncio.wait_for(kind_of(definition.kind).dropped(definition), DROP_TIMEOUT_S)
            log.info("source dropped", source=id, kind=definition.kind)
        except (PgError, UpstreamError) as error:
            log.warning("dropped source not cleaned up", source=id, error=error.message, hint=error.hint)
        except TimeoutError:
            log.warning("dropped source not cleaned up", source=id, error="timeout")


async def _log_snapshot(running: RunningSource) -> None:
    """Logs the progress of a source's snapshot while it changes, until cancelled."""
    statistics = running.statistics
    logged = statistics.snapshot_records_staged
    while True:
        await asyncio.sleep(SNAPSHOT_LOG_S)
        if (staged := statistics.snapshot_records_staged) != logged and staged is not None:
            log.info("source snapshot", source=running.id, staged=staged, known=statistics.snapshot_records_known)
        logged = staged


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("ingestion failed", task=task.get_name(), error=str(error), exc_info=error)
