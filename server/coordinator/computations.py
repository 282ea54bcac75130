"""Creates the computations of queries, views and indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from catalog.objects.indexes import Index
from catalog.objects.views import MaterializedView
from catalog.state import CatalogState
from server.coordinator.committer import Committer
from server.coordinator.reads import DataflowInputs, Reads
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.hydration import State
from server.dataflow.runtime.incremental import computation_of
from server.dataflow.runtime.unplanned import Unplanned
from server.runtime.offload import at_once, in_background_thread
from server.spark import Engine
from server.sql.grammar.checkpoint import Stopped
from server.sql.plan import QueryPlan
from server.sql.stored_query import plan_index, plan_stored

PLANNING_S = 0.05
"""How long the event loop plans views and indexes before it runs other sessions."""


class Computations:
    """Creates computations over the log and the system tables."""

    def __init__(
        self,
        committer: Committer,
        engine: Engine,
        reads: Reads,
        inputs: DataflowInputs,
        arrangements: SharedArrangements,
    ) -> None:
        self._committer = committer
        self._engine = engine
        self._reads = reads
        self._inputs = inputs
        self._arrangements = arrangements
        self._planned_s = 0.0

    def of_query(self, plan: QueryPlan) -> Computation:
        """Returns the computation that maintains a query. 0A000 if there is none. It may run in a thread."""
        maintenance = maintenance_strategy(plan, self._reads.sizes(plan.inputs))
        return computation_of(plan, maintenance, self._engine, self._inputs, self._arrangements)

    def of_item(self, item: MaterializedView | Index) -> Computation:
        """Returns the computation of a view or index.

        The columns of an index's computation are those of the relation, followed by the keys that are expressions.

        If planning takes long or fails, or many items are planned at the same time, returns an `Unplanned`, whose
        dataflow plans the query in a thread. If that fails, it plans again at every change of the inputs and reports
        the error. The commit that created the object is on disk, and other dataflows are not affected.
        """

        def plan(state: CatalogState) -> Computation:
            return self.of_query(plan_index(item, state) if isinstance(item, Index) else plan_stored(item.query, state))

        async def plan_later() -> Computation:
            return await in_background_thread(plan, self._committer.state)

        state = self._committer.state
        try:
            return self._at_once(plan, state)
        except Stopped:
            reached = State.WAITING
        except Exception:
            reached = State.FAILED
        return Unplanned(plan_later, reached, state.collections(item.depends_on), self._inputs)

    def _at_once(self, plan: Callable[[CatalogState], Computation], state: CatalogState) -> Computation:
        """Returns `plan(state)`. Stopped if that takes long, also together with those before it."""
        if self._planned_s > PLANNING_S:
            raise Stopped
        if not self._planned_s:
            asyncio.get_running_loop().call_soon(self._others_run)
        begun = monotonic()
        try:
            return at_once("", plan, state)
        finally:
            self._planned_s += monotonic() - begun

    def _others_run(self) -> None:
        self._planned_s = 0.0
