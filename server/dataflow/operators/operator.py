"""Operators: the nodes of a delta plan with their state.

A step (`Step`) moves a dataflow from the time `since` to later times t1, ..., tm. Version 0 is the old state, at
`since`; version i is the state at ti. Changes are tables with a node's columns, the version from which on they apply
(`v`), and `diff`. A stateful operator passes rows of the touched keys to Spark, for each version only those of the keys
that the version touches (`versions`). Operators update their state only after the step of the whole dataflow has
succeeded (`commit`); otherwise they discard the step's results (`roll_back`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.ids import Timestamp
from catalog.updates import DIFF, DIFF_FIELD
from protocol.columnar.hashing import Hashes, distinct_hashes, key_codes
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey, ByKeyAndOrder, ByOrder, Sorting
from server.dataflow.arrangements.shared import Lease, SharedArrangements
from server.dataflow.inputs import Inputs
from server.dataflow.operators.statistics import Record
from server.dataflow.operators.step_cost import StepCost
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import VERSION, Node, Source, Statement, TopK
from server.runtime.threads import in_thread
from server.spark import Runner

VERSION_FIELD = pa.field(VERSION, pa.int64(), nullable=False)


@dataclass(frozen=True, eq=False)
class Step:
    """A step of a dataflow. `since`: the time of the state; None for hydration, which has exactly one of `times`."""

    since: Timestamp | None
    times: tuple[Timestamp, ...]

    @property
    def versions(self) -> range:
        """The versions at `times`: 1, ..., m."""
        return range(1, len(self.times) + 1)


@dataclass(frozen=True, eq=False)
class OperatorContext:
    """What all operators of a dataflow share. `as_of`: the time of the hydration."""

    engine: Runner
    inputs: Inputs
    shared: SharedArrangements
    as_of: Timestamp
    step_cost: StepCost


class Operator(ABC):
    """The operator of one node. A step of the dataflow calls `compute`, and then either `commit` or `roll_back`.

    `row_cost`: the cost of a row that a statement of a step reads, including looking it up and storing it, in units of
    `StepCost`. `rows_per_change`: the least number of rows that a step reads for one changed row. Both are measured
    per rule by `python -m tests.bench deltas --never`.
    """

    row_cost = 3.0
    rows_per_change = 1.3

    def __init__(self, node: Node, context: OperatorContext) -> None:
        self.node = node
        self.record = Record()
        self._engine = context.engine
        self._step_cost = context.step_cost
        self._own: list[Arrangement] = []
        self._leases: list[Lease] = []
        # Changes to the state. Not set in threads: those of a cancelled step continue after `roll_back`.
        self._pending: list[tuple[Arrangement, Timestamp, pa.Table]] = []

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        """The arrangements that the operator uses, its own and shared ones, each with the names of its key columns."""
        return []

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        """The statements of the operator's steps, with the schemas of d0, d1, ..., which they read."""
        return ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the operator's changes."""
        return changes_schema(self.node)

    @cached_property
    def no_changes(self) -> pa.Table:
        """The result of a step that changes nothing."""
        return self.schema.empty_table()

    @property
    def next_time(self) -> Timestamp | None:
        """The next time at which the operator has a change even if its inputs have none."""
        return None

    @abstractmethod
    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        """The changes of a step, consolidated except in hydration. The state is unchanged until `commit`.

        `SourceOperator` has an exception for its readers. `inputs`: the changes of the node's inputs, in their order.
        """

    async def look_up(self, step: Step, changes: pa.Table) -> None:  # noqa: B027 (most operators need all inputs)
        """Does look-ups for `step` that need only the changes of the first input, while other inputs are computed."""

    async def compute_after(self, step: Step, awaited: Sequence[Awaitable[pa.Table]]) -> pa.Table:
        """Awaits the inputs, and computes the changes. The recorded time begins when all inputs are available."""
        inputs, begun = [], monotonic()
        if awaited:
            first = await awaited[0]
            (inputs, begun), _ = await asyncio.gather(_all(first, awaited[1:]), self.look_up(step, first))
        changes = await self.compute(step, inputs)
        work = self.record.current
        work.rows_in, work.rows_out = sum(table.num_rows for table in inputs), changes.num_rows
        work.seconds = monotonic() - begun
        if step.since is None:
            self.record.hydrated()
        return changes

    def roll_back(self) -> None:
        """The dataflow's step failed: discards its changes to the state."""
        self._pending.clear()
        self.record.roll_back()

    async def commit(self, step: Step) -> None:
        """The dataflow's step succeeded: applies its changes to the state. Must not be cancelled."""
        for arrangement, time, changes in self._pending:
            await arrangement.insert(changes, time)
        self._pending.clear()
        for arrangement in self._own:
            arrangement.advance(step.times[-1])
        for lease in self._leases:
            lease.advance(step.times[-1])

    def close(self) -> None:
        """Releases the state."""
        for lease in self._leases:
            lease.release()
        for arrangement in self._own:
            arrangement.close()

    async def _run(self, statement: Statement, views: Mapping[str, pa.Table]) -> pa.Table:
        """Runs a statement over `views`, whose columns are renamed to c0, c1, ...."""
        self._step_cost.add(sum(view.num_rows for view in views.values()), self.row_cost, self.rows_per_change)
        named = {name: named_columns(view) for name, view in views.items()}
        if (late := statement.late_for(named)) is not None:
            answer = await self._computed_rows(late.text, late.read(named))
            found = await in_thread(late.result, answer, named)
            if found is not None:
                return found
        return await self._computed_rows(statement.text(named), named)

    async def _computed_rows(self, text: str, views: Mapping[str, pa.Table]) -> pa.Table:
        begun = monotonic()
        found = await self._engine.run(text, views, patient=True)
        self.record.current.statements += 1
        self.record.current.spark_s += monotonic() - begun
        return found

    def _result(self, table: pa.Table, extra: Sequence[pa.Field]) -> pa.Table:
        """A statement's result, named and cast to the node's columns and `extra`."""
        schema = pa.schema([*self.node.schema, *extra])
        if table.schema.types == schema.types:
            return pa.Table.from_arrays(table.columns, schema=schema)  # a cast would cost a call for each column
        return table.rename_columns(schema.names).cast(schema)


class ArrangedInput:
    """The old state of an operator's input, arranged by a key. Arrangements of collections are shared."""

    def __init__(self, context: OperatorContext, node: Node, sorting: Sorting) -> None:
        self._inputs = context.inputs
        self.lease: Lease | None = None
        if isinstance(node, Source):
            key = (node.id, node.positions, sorting)
            self.lease = context.shared.lease(key, node.schema, context.as_of)
            self.arrangement = self.lease.arrangement
        else:
            self.arrangement = context.shared.arranger.arrangement(sorting, node.schema)

    async def first(
        self, top_k: TopK, key: tuple[int, ...], key_hashes: Hashes, changes: pa.Table, step: Step
    ) -> pa.Table:
        """The first `top_k.count + r` rows of each key in the old state, with r its number of retractions in `changes`.

        The first `top_k.count` rows of every later version are among these and the insertions in `changes`.
        """
        if step.since is None:
            return await old_rows(self.arrangement, key_hashes, step)
        retracted = changes.filter(pc.less(changes[DIFF], 0))
        retractions = -retracted[DIFF].to_numpy()
        if not key:
            return await self.arrangement.first(top_k.count + int(retractions.sum()), step.since)
        counts = np.full(len(key_hashes), top_k.count, np.int64)
        np.add.at(counts, np.searchsorted(key_hashes, key_codes(retracted, names_of(key))), retractions)
        return await self.arrangement.first_of(key_hashes, counts, step.since)

    async def inserts(self, changes: pa.Table, step: Step) -> list[tuple[Arrangement, Timestamp, pa.Table]]:
        """The inserts to make when the step has succeeded: (arrangement, time, changes).

        A shared arrangement needs none: it reads the changes from the log at once, at times after `step.since`.
        """
        if self.lease is not None:
            await self.lease.reach(self._inputs, step.times[-1])
            return []
        if not changes.num_rows:
            return []
        rows = changes.drop_columns([VERSION])  # the state is never read at times within a step
        if len(step.times) > 1:
            rows = await in_thread(updates.consolidate, rows)
        return [(self.arrangement, step.times[-1], rows)] if rows.num_rows else []


class ArrangingOperator(Operator):
    """An operator with arranged inputs."""

    def __init__(
        self, node: Node, branches: Sequence[Node], context: OperatorContext, sortings: Sequence[Sorting]
    ) -> None:
        """`branches`: the inputs that are arranged, a prefix of the node's inputs."""
        super().__init__(node, context)
        self._branches = branches
        self._arranged = [
            ArrangedInput(context, branch, sorting) for branch, sorting in zip(branches, sortings, strict=True)
        ]
        self._leases = [arranged.lease for arranged in self._arranged if arranged.lease is not None]
        self._own = [arranged.arrangement for arranged in self._arranged if arranged.lease is None]

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        found = []
        for node, arranged in zip(self._branches, self._arranged, strict=True):
            sorting = arranged.arrangement.sorted_by
            names = (sorting.column,) if isinstance(sorting, ByOrder) else sorting.columns
            arrangement = arranged.arrangement if arranged.lease is None else arranged.lease.shared.arrangement
            found.append((column_names(node, [int(name[1:]) for name in names]), arrangement))
        return found

    async def _add_inserts(self, step: Step, inputs: Sequence[pa.Table]) -> None:
        """Prepares the inputs' changes for `commit`, which stores them in the arrangements."""
        for arranged, changes in zip(self._arranged, inputs, strict=True):
            self._pending += await arranged.inserts(changes, step)


async def _all(first: pa.Table, awaited: Sequence[Awaitable[pa.Table]]) -> tuple[list[pa.Table], float]:
    """The inputs, and the time at which all were available."""
    return [first, *[await changes for changes in awaited]], monotonic()


def consolidated(changes: pa.Table, step: Step) -> pa.Table:
    """`changes` consolidated, except in hydration: all diffs are +1 then, and one state row per input row suffices."""
    return changes if step.since is None else updates.consolidate(changes)


def key_hashes_of(step: Step, keys: Sequence[tuple[int, ...]], *changes: pa.Table) -> Hashes:
    """The hashes of the keys in `changes`, ascending and distinct. Empty in hydration: there is no state to look up."""
    if step.since is None:
        return np.empty(0, np.uint32)
    return distinct_hashes(np.concatenate([key_codes(c, names_of(k)) for c, k in zip(changes, keys, strict=True)]))


async def old_rows(arrangement: Arrangement, key_hashes: Hashes, step: Step) -> pa.Table:
    """The rows of the old state with these key hashes, with `diff`. None in hydration."""
    if step.since is None:
        return updates.with_diff(arrangement.schema.empty_table(), 1)
    return await arrangement.probe(key_hashes, step.since)


def changes_schema(node: Node) -> pa.Schema:
    """The schema of a node's changes."""
    return pa.schema([*node.schema, VERSION_FIELD, DIFF_FIELD])


def named_columns(view: pa.Table) -> pa.Table:
    """The view with the column names that statements use: c0, c1, ...."""
    return view.rename_columns([f"c{i}" for i in range(view.num_columns)])


def names_of(positions: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the columns at these positions of a node's rows."""
    return tuple(f"c{position}" for position in positions)


def versioned(changes: pa.Table, version: int) -> pa.Table:
    """The changes, which end with `diff`, with this version before it."""
    versions = pa.array(np.full(changes.num_rows, version))
    return changes.add_column(changes.num_columns - 1, VERSION_FIELD, versions)


def sorting_of(top_k: TopK | None, key: tuple[int, ...]) -> Sorting:
    """The order of an arrangement from which the rows of a key, or its first ones, are read."""
    if top_k is None:
        return ByKey(names_of(key))
    order = ByOrder(f"c{top_k.column}", top_k.descending, top_k.nulls_first)
    return ByKeyAndOrder(names_of(key), order) if key else order
