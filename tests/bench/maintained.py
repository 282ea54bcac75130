"""The incremental computation of a benchmark's query, as a server would create it."""

from __future__ import annotations

from server.dataflow.arrangements.arrangement import Arranger
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.incremental import computation_of
from server.spark import Engine
from server.sql.plan import QueryPlan
from server.timeline.frontiers import Frontiers


def maintained(plan: QueryPlan, engine: Engine, inputs: Inputs, arranger: Arranger) -> Computation:
    """The computation, not hydrated yet. `arranger` stores its state. The caller closes it."""
    sizes = {id: inputs.log_row_count(id) for id in plan.inputs if inputs.is_logged(id)}
    shared = SharedArrangements(arranger, Frontiers().hold_log)
    return computation_of(plan, maintenance_strategy(plan, sizes), engine, inputs, shared)
