"""Incremental computation of a query by operators: the work per step depends on the changes, not on the rows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.updates import DIFF
from protocol.columnar.gather import rows_at
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.operators.factory import operators_of
from server.dataflow.operators.linear import SourceOperator
from server.dataflow.operators.operator import Operator, OperatorContext, Step
from server.dataflow.operators.statistics import Record
from server.dataflow.operators.step_cost import StepCost, TooMuch
from server.dataflow.plan.maintenance_strategy import MaintenanceStrategy
from server.dataflow.plan.nodes import (
    VERSION,
    Concat,
    Constant,
    DistinctValues,
    Linear,
    Node,
    Recompute,
    Source,
    Temporal,
    nodes_of,
)
from server.dataflow.plan.relevance import KeyValues, relevant_rows
from server.dataflow.runtime.computation import Computation, Hold, Holder, Present, Recomputation, compute
from server.dataflow.runtime.hydration import Hydration
from server.dataflow.runtime.preparation import Preparation
from server.dataflow.runtime.restoration import Restoration
from server.dataflow.runtime.statement_limit import STATEMENTS_MAX, StatementLimit
from server.runtime.threads import all_or_none, in_thread, to_the_end
from server.spark import Engine, Runner
from server.sql.constant import Bindings
from server.sql.expressions import walk
from server.sql.plan import QueryPlan
from server.sql.relations import Aggregate, Relation, Window
from server.sql.render import spark_text

TIMES_MAX = 256  # of one step of a lagging dataflow
ROWS_MAX = 100_000  # changed rows of a step over several times, which bounds its duration and memory
PAUSE_S_MAX = 1.0  # before the state is restored
RESTORING_STATEMENTS_MAX = 1  # at a time, while the state is built again: steps need the other processors


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
    """The operators of a delta plan with their state. Equal subplans share one operator.

    A step that would cost more than the computation of all rows is replaced by one, which drops the state.
    `restore_state` then builds the state again in the background, with new operators:

        T = the time of the hold:  hydrate the operators at T;  while T < current time:  step the operators from T on

    The current time moves on meanwhile: steps compute all rows, until the new operators have reached the current time
    and replace the former ones. A step that is computing all rows at this moment is computed incrementally instead.
    """

    def __init__(self, root: Node, plan: QueryPlan, inputs: Inputs, engine: Engine, shared: SharedArrangements) -> None:
        """`root`: the delta plan of `plan`."""
        self.inputs = plan.inputs
        self.fingerprint = plan.fingerprint
        self.root = root
        self.hydration = Hydration()
        self._reads = inputs
        self._engine = engine
        self._statements = StatementLimit(engine, STATEMENTS_MAX)
        self._preparation = Preparation(engine)
        self._shared = shared
        self._operators: list[Operator] = []
        self._hydrating: list[Operator] = []  # the operators that are being hydrated, or restored
        self._records: list[Record] = []  # of the last operators that had a state
        self._time: Timestamp | None = None
        self._has_state = True  # every operator has the state at `_time`
        self._rows: pa.Table | None = None  # the rows at `_time`, after a computation of all rows and without state
        self._restoration = Restoration()
        self._times_waiting = 1  # at the last call of `times`
        self._all_rows_s = 0.0  # the duration of the last computation of all rows
        self._step_cost = StepCost(sum(map(_reads_per_row, nodes_of(root))))
        self._is_temporal = any(isinstance(node, Temporal) for node in nodes_of(root))
        self._is_stateless = all(isinstance(node, Source | Constant | Concat | Linear) for node in nodes_of(root))
        relation = root.relation
        self._plan = replace(plan, relation=relation, template=spark_text(relation))
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
        """Whether the next step can be incremental."""
        return self._has_state

    @property
    def operators(self) -> Sequence[Operator]:
        """The operators with the state; while there is none those that are being hydrated or restored."""
        return self._operators or self._hydrating

    async def hydrate(self, as_of: Timestamp, stored: pa.Table | None = None) -> pa.Table:
        self._restoration.stop()
        operators, changes = await self._hydrated(as_of, self._statements)
        self._replace(operators, as_of)
        return await in_thread(updates.expand, changes.drop_columns([VERSION])) if stored is None else stored

    async def _hydrated(self, as_of: Timestamp, engine: Runner) -> tuple[list[Operator], pa.Table]:
        """New operators with the state at `as_of`, and the root's changes from no rows to those at `as_of`."""
        self._reads.check_errors(self.inputs, (as_of,))
        operators = operators_of(self.root, OperatorContext(engine, self._reads, self._shared, as_of, self._step_cost))
        sources = [operator.collection for operator in operators if isinstance(operator, SourceOperator)]
        rows = sum(self._reads.log_row_count(id, 0, as_of + 1) for id in sources)  # a collection may be read repeatedly
        with self.hydration.running(as_of, len(operators), rows):
            self._hydrating = operators
            self._step_cost.begin()
            try:
                step = Step(None, (as_of,))
                changes = await self._compute(operators, step)
                await _commit(operators, step)
            except BaseException:
                _close(operators)
                raise
            finally:
                self._hydrating = []
            self._step_cost.end(whole=self.hydration.rows_read)
        return operators, changes

    def _replace(self, operators: list[Operator], time: Timestamp) -> None:
        """Replaces the operators by others with the state at `time`."""
        for before, operator in zip(self._records, operators, strict=False):  # none in the first hydration
            operator.record.take_over(before)
        is_first = not self._records
        self._drop_state()
        self._operators, self._records, self._time = operators, [operator.record for operator in operators], time
        self._has_state, self._rows = True, None
        if is_first:
            self._preparation.start(operators)

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        found = {time for id in self.inputs for time in self._reads.change_times(id, lower, upper)}
        found.update(time for time in self._next_times if lower <= time < upper)
        self._times_waiting = len(found)
        return self._of_one_step(lower, sorted(found)[: self._times_max if self._has_state else 1])

    def _of_one_step(self, lower: int, times: list[Timestamp]) -> list[Timestamp]:
        """The first of `times`, with at most ROWS_MAX changed rows at times from `lower` on; at least one."""
        while len(times) > 1 and self._changed_rows(lower, times[-1]) > ROWS_MAX:
            times = times[: len(times) // 2]
        return times

    def _changed_rows(self, lower: int, last: Timestamp) -> int:
        """The number of log rows of the inputs at times from `lower` to `last`."""
        return sum(self._reads.log_row_count(id, lower, last + 1) for id in self.inputs)

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        self._reads.check_errors(self.inputs, times)
        if not self._has_state and present is not None and len(times) == 1:
            changes = await self._changes_without_state(times[0], present)
            if changes is not None:
                return [changes]
        if not self._has_state:
            assert self._time is not None
            await self.hydrate(self._time)
        assert self._time is not None
        step = Step(self._time, tuple(times))
        try:
            self._begin(self._time, times[-1], limited=present is not None)
            changes = await self._compute(self._operators, step)
        except TooMuch:
            if present is None or len(times) > 1:
                raise
            return [await self._changes_by_recomputing(times[0], present)]
        self._has_state = False
        await _commit(self._operators, step)
        self._has_state = True
        self._step_cost.end()
        self._time = times[-1]
        if len(times) == 1:
            return [_retractions_first(changes)]
        return await in_thread(_by_version, changes, step)

    def pass_to(self, time: Timestamp) -> None:
        assert self._time is not None
        self._time = max(self._time, time)

    def _begin(self, since: Timestamp, time: Timestamp, *, limited: bool) -> None:
        """Begins to count the cost of a step. TooMuch if the number of changes alone exceeds the limit."""
        self._step_cost.begin(self._changed_rows(since + 1, time), limited=limited)

    async def _changes_without_state(self, time: Timestamp, present: Present) -> pa.Table | None:
        """The changes up to a time, from all rows. None if the state is restored first: the step can use it."""
        assert self._time is not None
        if self._is_temporal:
            return await self._changes_by_hydrating(time, present)
        if self._step_cost.refuses(self._changed_rows(self._time + 1, time)):
            self._restoration.stop()  # to catch up would be too much work
        else:
            await self._restoration.make_way(self._times_waiting, self._all_rows_s, self.hydration.seconds or 0.0)
            if self._has_state:
                return None
        found = await self._unless_restored(self._all_rows(time, present))
        if found is None:
            return None
        self._rows, changes = found
        self._time = time
        return changes

    async def _unless_restored(
        self, work: Coroutine[Any, Any, tuple[pa.Table, pa.Table]]
    ) -> tuple[pa.Table, pa.Table] | None:
        """The work's result. If the state is restored before the work ends: cancels the work, and returns None."""
        working, restoring = asyncio.create_task(work), self._restoration.task
        try:
            awaited = {working} if restoring is None else {working, restoring}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not self._has_state:  # the restoration failed, or was not first
                await asyncio.wait({working})
        finally:
            working.cancel()
            await asyncio.wait({working})
        if self._has_state:
            _ = working.cancelled() or working.exception()  # marks the exception as retrieved
            return None
        return working.result()

    async def _changes_by_recomputing(self, time: Timestamp, present: Present) -> pa.Table:
        """The changes up to a time: computes all rows and subtracts the present rows. Drops the state, if there is any.

        With a temporal filter it hydrates at once, because `next_time` depends on the state.
        """
        if self._is_temporal:
            return await self._changes_by_hydrating(time, present)
        rows, changes = await self._all_rows(time, present)
        self._time = time
        if not self._is_stateless:
            self._drop_state()
            self._has_state, self._rows = False, rows
        return changes

    async def _changes_by_hydrating(self, time: Timestamp, present: Present) -> pa.Table:
        """The changes up to a time: hydrates at that time and subtracts the present rows."""
        rows = await self.hydrate(time)
        return await in_thread(updates.difference, rows, await present())

    async def _all_rows(self, time: Timestamp, present: Present) -> tuple[pa.Table, pa.Table]:
        """All rows at a time, and the changes up to it. Its statement is not counted by STATEMENTS_MAX.

        The present rows are consolidated while Spark computes.
        """
        begun = monotonic()

        async def read(id: ObjectId, as_of: Timestamp) -> pa.Table:
            nonlocal begun
            rows = await self._reads.rows(id, as_of)
            begun = monotonic()  # the duration of a read depends on the changes: it is no estimate for other steps
            return rows

        async def before() -> pa.Table:
            return await present() if self._rows is None else self._rows

        computing = compute(self._plan, Bindings(), self._engine, read, time, patient=True)
        tasks = [asyncio.create_task(computing), asyncio.create_task(before())]
        await all_or_none(tasks)
        rows = tasks[0].result()
        changes = await in_thread(updates.difference, rows, tasks[1].result())
        self._step_cost.recomputed(self._changed_rows(0, time))
        self._all_rows_s = monotonic() - begun
        return rows, changes

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        if not self._has_state and self._restoration.task is None and not self._is_temporal:
            self._restoration.start(self._restore(hold, failed))

    async def _restore(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        """Restores the state, one dataflow at a time: a state that is built needs more memory than the finished one."""
        try:
            await asyncio.sleep(min(self._all_rows_s, PAUSE_S_MAX))  # the next step may follow at once
            async with self._shared.restoring:
                with hold() as holder:
                    self._restoration.begin()
                    while not await self._restored(holder):
                        assert self._time is not None
                        holder.advance(self._time)
                        self._restoration.begin()
            self._restoration.end(restored=True)
        except Exception as error:
            self._restoration.end(restored=False)
            failed(error)

    async def _restored(self, holder: Holder) -> bool:
        """Hydrates new operators at the holder's time and lets them catch up. False if that is too much work."""
        time = holder.time
        engine = StatementLimit(self._statements, RESTORING_STATEMENTS_MAX)
        operators, _ = await self._hydrated(time, engine)
        is_restored, self._hydrating = False, operators
        try:
            while times := self._times_to_catch_up(time):
                time = await self._caught_up(operators, time, times)
                holder.advance(time)
            is_restored = True
        except TooMuch:
            return False
        finally:
            self._hydrating = []
            if not is_restored:
                _close(operators)
        engine.raise_to(STATEMENTS_MAX)
        assert self._time is not None
        self._replace(operators, max(self._time, time))
        return True

    def _times_to_catch_up(self, since: Timestamp) -> list[Timestamp]:
        """The times of the next step from `since` on, up to the current time; none if the current time is reached."""
        assert self._time is not None
        found = {t for id in self.inputs for t in self._reads.change_times(id, since + 1, self._time + 1)}
        return self._of_one_step(since + 1, sorted(found))

    async def _caught_up(self, operators: list[Operator], since: Timestamp, times: list[Timestamp]) -> Timestamp:
        """Moves restored operators to the last of `times`, or, if that is too much work for a step, to an earlier one.

        Returns the time. TooMuch if a step to the first of `times` is too much work.
        """
        while True:
            try:
                self._begin(since, times[-1], limited=True)
                step = Step(since, (times[-1],))
                await self._compute(operators, step)
            except TooMuch:
                if len(times) == 1:
                    raise
                times = times[: len(times) // 2]
            else:
                await _commit(operators, step)
                self._step_cost.end()
                return times[-1]

    def _drop_state(self) -> None:
        self._preparation.stop()
        _close(self._operators)
        self._operators = []

    def close(self) -> None:
        self._restoration.stop()
        self._drop_state()
        self._rows = None

    async def closed(self) -> None:
        await self._restoration.closed()

    async def _compute(self, operators: list[Operator], step: Step) -> pa.Table:
        """The root's changes. `_commit` has to follow. After an exception no operator has changes to commit."""
        tasks: dict[int, asyncio.Task[pa.Table]] = {}

        async def compute_one(operator: Operator) -> pa.Table:
            changes = await operator.compute_after(step, [tasks[id(below)] for below in operator.node.inputs])
            if step.since is None:
                self.hydration.operators_done += 1
                self.hydration.rows_read += changes.num_rows if isinstance(operator, SourceOperator) else 0
            return changes

        tasks |= {id(operator.node): asyncio.create_task(compute_one(operator)) for operator in operators}
        try:
            await all_or_none(list(tasks.values()))
        except BaseException:
            for operator in operators:
                operator.roll_back()
            raise
        return tasks[id(self.root)].result()


def _by_version(changes: pa.Table, step: Step) -> list[pa.Table]:
    """The changes of each version, retractions first."""
    versions, inserted = changes[VERSION].to_numpy(), changes[DIFF].to_numpy() > 0
    order = np.lexsort((inserted, versions))
    rows = rows_at(changes.drop_columns([VERSION]), order)
    ends = np.searchsorted(versions[order], step.versions, "right").tolist()
    return [rows.slice(first, end - first) for first, end in itertools.pairwise([0, *ends])]


def _reads_per_row(node: Node) -> int:
    """An estimate how often the computation of all rows reads a row for this node."""
    match node:
        case Source() | Constant() | Concat():
            return 0
        case DistinctValues(members=members):
            return len(members)
        case Recompute(relation=relation, branches=branches):
            return max(1, _passes(relation) - sum(_passes(branch.relation) for branch in branches))
    return 1


def _passes(relation: Relation) -> int:
    """The number of windows and aggregates."""
    return sum(isinstance(node, Window | Aggregate) for node in walk(relation))


def _retractions_first(changes: pa.Table) -> pa.Table:
    """The changes of one version, retractions first: most clients that apply them in order keep one row per key."""
    rows, inserted = changes.drop_columns([VERSION]), changes[DIFF].to_numpy() > 0
    return rows if inserted.all() else rows.take(pa.array(np.argsort(inserted, kind="stable")))


def _close(operators: list[Operator]) -> None:
    for operator in operators:
        operator.close()


async def _commit(operators: list[Operator], step: Step) -> None:
    """Applies the step's changes to the state. After an error the state is incomplete."""
    await to_the_end(_committed(operators, step))
    if step.since is not None:
        for operator in operators:
            operator.record.commit()


async def _committed(operators: list[Operator], step: Step) -> None:
    for operator in operators:
        await operator.commit(step)
