"""The running dataflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from catalog.ids import ObjectId, Timestamp
from catalog.objects.indexes import Index
from catalog.objects.views import MaterializedView
from protocol.pgwire.errors import PgError
from server.coordinator.backpressure import Backpressure
from server.coordinator.tasks import BackgroundTasks
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.dataflow import Dataflow, Sink
from server.dataflow.runtime.resting import Resting
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers, Holder


class Dataflows:
    """The dataflows by id, each with its task. The id of a view's or an index's dataflow is that of the object."""

    def __init__(
        self,
        frontiers: Frontiers,
        backpressure: Backpressure,
        tasks: BackgroundTasks,
        metrics: Metrics,
        system_tables: frozenset[ObjectId],
    ) -> None:
        """`system_tables`: the relations whose changes are not announced to `resting`."""
        self.running: dict[str, Dataflow] = {}
        self._frontiers = frontiers
        self._backpressure = backpressure
        self._tasks = tasks
        self._metrics = metrics
        self._system_tables = system_tables
        self._task_of: dict[str, asyncio.Task[None]] = {}
        self.restarting: set[str] = set()
        """The ids of dataflows that `restart` has stopped and not started yet."""
        self.resting = Resting()

    def start(
        self,
        id: str,
        computation: Computation,
        sink: Sink,
        holder: Holder,
        item: MaterializedView | Index | None = None,
    ) -> asyncio.Task[None]:
        """Starts a dataflow, whose inputs `holder` holds. Returns its task."""
        dataflow = Dataflow(
            id,
            computation,
            sink,
            self._frontiers,
            holder,
            self._metrics,
            item=item,
            holds_too_much=self._backpressure.exceeds_limit,
            resting=self.resting if computation.inputs.isdisjoint(self._system_tables) else None,
        )
        self._backpressure.track(dataflow)
        self.running[id] = dataflow
        task = self._task_of[id] = self._tasks.start(dataflow.run(), f"dataflow {id}")
        task.add_done_callback(lambda _: dataflow.close())
        return task

    def cancel(self, id: str) -> None:
        """Cancels a dataflow's task. The dataflow remains known until it is stopped."""
        self._task_of[id].cancel()

    def stop(self, id: str) -> None:
        """Stops and removes a dataflow, if there is one with this id."""
        if self.running.pop(id, None) is not None:
            self._task_of.pop(id).cancel()

    def restart(self, id: str, start: Callable[[], None]) -> None:
        """Stops a dataflow, and calls `start` when its task has ended. The history of its inputs is held until then."""
        kept, task = self._frontiers.copy_of(self.running.pop(id).holder), self._task_of.pop(id)
        self.restarting.add(id)

        def ended(_: asyncio.Task[None]) -> None:
            self.restarting.discard(id)
            try:
                start()
            finally:
                kept.release()

        task.add_done_callback(ended)  # after the callback that closes the dataflow
        task.cancel()

    @property
    def views(self) -> dict[ObjectId, Dataflow]:
        """The dataflows of materialized views."""
        return {flow.item.id: flow for flow in self.running.values() if isinstance(flow.item, MaterializedView)}

    @property
    def computations(self) -> list[Computation]:
        return [dataflow.computation for dataflow in self.running.values()]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of dataflows by kind."""
        return {"materialized view": len(self.views), "query": sum(f.item is None for f in self.running.values())}

    def error_of(self, ids: Iterable[ObjectId], as_of: Timestamp) -> PgError | None:
        """Returns the error that keeps one of the relations, or a view that it reads, from reaching `as_of`, if any."""
        for id in ids:
            view = self.running.get(id)
            if view is not None and isinstance(view.item, MaterializedView) and view.upper <= as_of:
                error = view.error if as_of < view.processed_upper else None
                error = error or self.error_of(view.inputs, as_of)
                if error is not None:
                    return error
        return None

    def dependent_views(self, id: ObjectId) -> frozenset[ObjectId]:
        """Returns a materialized view and all materialized views that read it, directly or indirectly."""
        views, found = self.views, {id}
        while more := {other for other, view in views.items() if found & view.inputs} - found:
            found |= more
        return frozenset(found)
