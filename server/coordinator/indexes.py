"""The indexes: their arrangements, and the tasks that maintain them."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.indexes import Index
from catalog.objects.relations import Collection
from catalog.objects.views import View
from catalog.state import CatalogState
from protocol.columnar.hashing import Hashes
from server.coordinator.arrangements import Arrangements
from server.coordinator.computations import Computations
from server.coordinator.dataflows import Dataflows
from server.coordinator.reads import DataflowInputs, Reads
from server.coordinator.snapshot_cache import collection_schema
from server.coordinator.tasks import BackgroundTasks
from server.dataflow.runtime.index import IndexArrangement, IndexLayout, IndexSink, LogIndex
from server.sql.index_keys import index_keys, is_computed
from server.timeline.frontiers import Frontiers


class Indexes:
    """Starts and stops the maintenance of indexes, and looks up rows in them."""

    def __init__(
        self,
        dataflows: Dataflows,
        computations: Computations,
        tasks: BackgroundTasks,
        frontiers: Frontiers,
        reads: Reads,
        inputs: DataflowInputs,
        arrangements: Arrangements,
    ) -> None:
        self.arranged: dict[ObjectId, IndexArrangement] = {}
        """The rows of each index."""
        self._dataflows = dataflows
        self._computations = computations
        self._tasks = tasks
        self._frontiers = frontiers
        self._reads = reads
        self._inputs = inputs
        self._arrangements = arrangements
        self._log_tasks: dict[ObjectId, asyncio.Task[None]] = {}

    def start(self, index: Index, state: CatalogState) -> None:
        layout = _layout(index, state)
        if is_computed(index, state):
            self._start_computed(index, layout)
        else:
            log_index = LogIndex(index, layout, self._inputs, self._frontiers, self._arrangements.shared)
            self.arranged[index.id] = log_index
            self._log_tasks[index.id] = self._tasks.start(log_index.run(), f"index {index.id}")

    def _start_computed(self, index: Index, layout: IndexLayout) -> None:
        def restart() -> None:
            if self.arranged.get(index.id) is sink:
                self.stop(index.id)
                self._start_computed(index, layout)

        computation, frontiers = self._computations.of_item(index), self._frontiers
        sink = IndexSink(index, layout, computation.inputs, frontiers, self._arrangements.arranger, restart)
        # The logs of the inputs begin at the index's `since` or earlier, even if their own `since` is later.
        holder = frontiers.hold_history(computation.inputs, sink.upper)
        self.arranged[index.id] = sink
        self._dataflows.start(index.id, computation, sink, holder, index)

    def stop(self, id: ObjectId) -> None:
        """Stops the maintenance of an index, if there is one with this id."""
        if self.arranged.pop(id, None) is not None:
            self._dataflows.stop(id)
            if (task := self._log_tasks.pop(id, None)) is not None:
                task.cancel()

    async def find(self, id: ObjectId, key_hashes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        """As `IndexArrangement.find`. Waits until `as_of < upper` of the index's relation. The caller holds `as_of`."""
        index = self.arranged.get(id)
        if index is None:
            return None
        await self._reads.final_and_valid(index.index.on, as_of)
        return await index.find(key_hashes, as_of)


def _layout(index: Index, state: CatalogState) -> IndexLayout:
    item = state.items[index.on]
    assert isinstance(item, Collection | View)
    keys = index_keys(item.columns, index.keys)
    computed = [key.type.arrow for key in keys if not isinstance(key, int)]
    width = len(item.columns)
    positions = iter(range(width, width + len(computed)))
    key = [number if isinstance(number, int) else next(positions) for number in keys]
    return IndexLayout(updates.rows_schema([*collection_schema(item).types, *computed]), width, key)
