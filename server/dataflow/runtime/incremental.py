"""Incremental computation of a query by operators: the work per step depends on the changes, not on the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from catalog.updates import DIFF
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.operators.factory import operators_of
from server.dataflow.operators.linear import SourceOperator
from server.dataflow.operators.operator import Operator, OperatorContext, Tick
from server.dataflow.operators.step_cost import StepCost, TooMuch
from server.dataflow.plan.maintenance_strategy import MaintenanceStrategy
from server.dataflow.plan.nodes import VERSION, Concat, Constant, Node, Recompute, Source, Temporal, nodes_of
from server.dataflow.plan.relevance import KeyValues, relevant_rows
from server.dataflow.runtime.computation import Computation, Present, Recomputation, compute
from server.dataflow.runtime.hydration import Hydration
from server.dataflow.runtime.preparation import Preparation
from server.dataflow.runtime.statement_limit import StatementLimit
from server.runtime.threads import all_or_none, in_thread, to_the_end
from server.spark import Engine
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan
from server.sql.render import spark_text

TIMES_MAX = 256  # of one step of a lagging dataflow
ROWS_MAX = 100_000  # changed rows of a step over several times, which bounds its duration and memory


def computation_of(
    plan: QueryPlan, maintenance: MaintenanceStrategy, engine: Engine, inputs: Inputs, shared: SharedArrangements
) -> Computation:
    """Operators if every part of the query has a delta rule, else a recomputation. 0A000 if neither is possible."""
    maintenance.check()
    if maintenance.root is None:
        relation = maintenance.relation
        return Recomputation(replace(plan, relation=relation, template=spark_text(relation)), engine, inputs)
    return IncrementalComputation(maintenance.root, plan, inputs, engine, shared)


class IncrementalComputation:
    """The operators of a delta plan with their state. Equal subplans share one operator."""

    def __init__(self, root: Node, plan: QueryPlan, inputs: Inputs, engine: Engine, shared: SharedArrangements) -> None:
        """`root`: the delta plan of `plan`."""
        self.inputs = plan.inputs
        self.fingerprint = plan.fingerprint
        self.root = root
        self.hydration = Hydration()
        self._reads = inputs
        self._engine = StatementLimit(engine)
        self._preparation = Preparation(engine)
        self._shared = shared
        self._operators: list[Operator] = []
        self._hydrating: list[Operator] = []  # the operators that are being hydrated
        self._time: Timestamp | None = None
        self._has_state = True  # every operator has the state at `_time`
        self._step_cost = StepCost(sum(not isinstance(node, Source | Constant | Concat) for node in nodes_of(root)))
        self._is_temporal = any(isinstance(node, Temporal) for node in nodes_of(root))
        self._plan = plan
        one_time = any(
            isinstance(node, Temporal) or (isinstance(node, Recompute) and node.recomputes_all)
            for node in nodes_of(root)
        )
        self._times_max = 1 if one_time else TIMES_MAX

    @property
    def arrangements(self) -> Sequence[tuple[str, Arrangement]]:
        return [arrangement for operator in self._operators for arrangement in operator.arrangements]

    @property
    def relevant(self) -> Mapping[ObjectId, Sequence[KeyValues]]:
        return relevant_rows(self.root)

    @property
    def next_time(self) -> Timestamp | None:
        return min(self._next_times, default=None)

    @property
    def _next_times(self) -> list[Timestamp]:
        """The next times at which operators have changes even if the inputs have none."""
        times = (operator.next_time for operator in self._operators)
        return [time for time in times if time is not None]

    @property
    def has_state(self) -> bool:
        """As `Computation.has_state`."""
        return self._has_state

    @property
    def operators(self) -> Sequence[Operator]:
        """The current operators; during the first hydration those that are being hydrated."""
        return self._operators or self._hydrating

    async def hydrate(self, as_of: Timestamp, known: pa.Table | None = None) -> pa.Table:
        self._reads.check_errors(self.inputs, (as_of,))
        operators = operators_of(
            self.root, OperatorContext(self._engine, self._reads, self._shared, as_of, self._step_cost)
        )
        rows_there = self._changed_rows(0, as_of)
        with self.hydration.running(as_of, len(operators), rows_there):
            self._hydrating = operators
            self._step_cost.begin()
            try:
                changes = await self._step(operators, Tick(None, (as_of,)))
            except BaseException:
                _close(operators)
                raise
            finally:
                self._hydrating = []
            for before, operator in zip(self._operators, operators, strict=False):  # none in the first hydration
                operator.record.follow(before.record)
            is_first = not self._operators
            self.close()
            self._operators, self._time = operators, as_of
            if is_first:
                self._preparation.start(operators)
            self._step_cost.end(whole=self.hydration.rows_read)
            return await in_thread(updates.expand, changes.drop_columns([VERSION])) if known is None else known

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        found = {time for id in self.inputs for time in self._reads.change_times(id, lower, upper)}
        found.update(time for time in self._next_times if lower <= time < upper)
        times = sorted(found)[: self._times_max if self._has_state else 1]
        while len(times) > 1 and self._changed_rows(lower, times[-1]) > ROWS_MAX:
            times = times[: len(times) // 2]
        return times

    def _changed_rows(self, lower: int, last: Timestamp) -> int:
        """The number of log rows of the inputs at times from `lower` to `last`."""
        return sum(self._reads.log_row_count(id, lower, last + 1) for id in self.inputs)

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        self._reads.check_errors(self.inputs, times)
        if not self._has_state:  # a commit failed or was cancelled, or `_changes_by_recomputing` dropped the state
            if present is not None and len(times) == 1:
                return [await self._changes_by_hydrating(times[0], present)]
            assert self._time is not None
            await self.hydrate(self._time)
        tick = Tick(self._time, tuple(times))
        try:
            self._begin(times[-1], limited=present is not None)
            changes = await self._step(self._operators, tick)
        except TooMuch:
            if present is None or len(times) > 1:
                raise
            return [await self._changes_by_recomputing(times[0], present)]
        self._step_cost.end()
        self._time = times[-1]
        if len(times) == 1:
            return [_retractions_first(changes)]
        return [_retractions_first(changes.filter(pc.equal(changes[VERSION], version))) for version in tick.new]

    def pass_to(self, time: Timestamp) -> None:
        assert self._time is not None
        self._time = max(self._time, time)

    def _begin(self, time: Timestamp, *, limited: bool) -> None:
        """Begins to count the cost of a step to `time`. TooMuch if the number of changes alone exceeds the limit."""
        assert self._time is not None
        self._step_cost.begin(self._changed_rows(self._time + 1, time), limited=limited)

    async def _changes_by_hydrating(self, time: Timestamp, present: Present) -> pa.Table:
        """The changes up to a time if there is no state: hydrates at that time and subtracts the present rows."""
        try:
            self._begin(time, limited=True)
        except TooMuch:
            return await self._changes_by_recomputing(time, present)
        rows = await self.hydrate(time)
        return await in_thread(updates.difference, rows, await present())

    async def _changes_by_recomputing(self, time: Timestamp, present: Present) -> pa.Table:
        """The changes up to a time: computes all rows and subtracts the present rows.

        The state is dropped; the next step hydrates again unless it also computes all rows. With a temporal filter it
        hydrates at once, because `next_time` depends on the state.
        """
        if self._is_temporal:
            rows = await self.hydrate(time)
            return await in_thread(updates.difference, rows, await present())
        relation = self.root.relation
        plan = replace(self._plan, relation=relation, template=spark_text(relation))
        rows = await compute(plan, Bindings(), self._engine, self._reads.rows, time, patient=True)
        changes = await in_thread(updates.difference, rows, await present())
        self._step_cost.recomputed(self._changed_rows(0, time))
        self.close()
        self._time, self._has_state = time, False
        return changes

    def close(self) -> None:
        self._preparation.stop()
        _close(self._operators)
        self._operators = []

    async def _step(self, operators: list[Operator], tick: Tick) -> pa.Table:
        """The root's changes. All operators have committed the step, or after an exception in a step none."""
        tasks: dict[int, asyncio.Task[pa.Table]] = {}

        async def step(operator: Operator) -> pa.Table:
            changes = await operator.counted_step(tick, [tasks[id(below)] for below in operator.node.inputs])
            if tick.since is None:
                self.hydration.operators_done += 1
                self.hydration.rows_read += changes.num_rows if isinstance(operator, SourceOperator) else 0
            return changes

        tasks |= {id(operator.node): asyncio.create_task(step(operator)) for operator in operators}
        try:
            await all_or_none(list(tasks.values()))
        except BaseException:
            for operator in operators:
                operator.forget()
            raise
        found = tasks[id(self.root)].result()
        self._has_state = False
        await to_the_end(_committed(operators, tick))
        self._has_state = True
        if tick.since is not None:
            for operator in operators:
                operator.record.keep()
        return found


def _retractions_first(changes: pa.Table) -> pa.Table:
    """The changes of one version, retractions first: most clients that apply them in order keep one row per key."""
    inserted = changes[DIFF].to_numpy() > 0
    return changes.drop_columns([VERSION]).take(pa.array(np.argsort(inserted, kind="stable")))


def _close(operators: list[Operator]) -> None:
    for operator in operators:
        operator.close()


async def _committed(operators: list[Operator], tick: Tick) -> None:
    for operator in operators:
        await operator.commit(tick)
