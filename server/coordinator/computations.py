"""Creates the computations of queries, views and indexes."""

from __future__ import annotations

from catalog.objects import Index, MaterializedView
from server.coordinator.committer import Committer
from server.coordinator.reads import DataflowInputs, Reads
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.plan.maintenance_strategy import MaintenanceStrategy, maintenance_strategy
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.failed_plan import FailedPlan
from server.dataflow.runtime.incremental import computation_of
from server.spark import Engine
from server.sql.plan import QueryPlan
from server.sql.stored_query import plan_index, plan_stored


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

    def of_query(self, plan: QueryPlan, maintenance: MaintenanceStrategy | None = None) -> Computation:
        """Returns the computation that maintains a query. 0A000 if there is none.

        `maintenance` is the result of `maintenance_strategy`, if the caller has it.
        """
        maintenance = maintenance or maintenance_strategy(plan, self._reads.sizes(plan.inputs))
        return computation_of(plan, maintenance, self._engine, self._inputs, self._arrangements)

    def of_item(self, item: MaterializedView | Index) -> Computation:
        """Returns the computation of a view or index.

        The columns of an index's computation are those of the relation, followed by the keys that are expressions.

        If planning fails, returns a `FailedPlan`, which plans again at every change of the inputs and reports the
        error through its dataflow. The commit that created the object is on disk, and other dataflows are not affected.
        """

        def plan() -> Computation:
            state = self._committer.state
            return self.of_query(plan_index(item, state) if isinstance(item, Index) else plan_stored(item.query, state))

        try:
            return plan()
        except Exception:
            return FailedPlan(plan, self._committer.state.collections(item.depends_on), self._inputs)
