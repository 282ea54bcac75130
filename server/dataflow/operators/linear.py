"""Linear operators: each row is processed by itself. Only `TemporalOperator` has state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.updates import DIFF, DIFF_FIELD
from server.dataflow.operators.operator import (
    VERSION_FIELD,
    Operator,
    OperatorContext,
    Step,
    changes_schema,
    consolidated,
    versioned,
)
from server.dataflow.operators.temporal_buffer import TemporalBuffer
from server.dataflow.plan.nodes import Constant, Linear, Source, Statement, Temporal
from server.runtime.threads import in_thread
from server.sql.constant import Bindings
from server.sql.temporal import LAST

_BOUND_FIELDS = (pa.field("lower", pa.int64()), pa.field("upper", pa.int64()))


class SourceOperator(Operator):
    """Reads the changes of a collection."""

    def __init__(self, node: Source, context: OperatorContext, *, merges: bool) -> None:
        """`merges`: whether rows that are equal in the selected columns must be merged although nothing is retracted.

        Linear operators and joins do not need this: they consolidate their results.
        """
        super().__init__(node, context)
        self._source = node
        self._merges = merges
        self._inputs = context.inputs

    @property
    def collection(self) -> ObjectId:
        return self._source.id

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        id = self._source.id
        if step.since is None:
            rows = await self._inputs.rows(id, step.times[0])
            return self._selected(updates.with_diff(rows, 1), 1)
        parts, lower, is_consolidated = [self.no_changes], step.since + 1, True
        for version, time in enumerate(step.times, 1):
            if times := self._inputs.change_times(id, lower, time + 1):
                # From the first change on: the log may have no history of the times before it.
                changes = await self._inputs.changes(id, times[0], time + 1)
                retracts = updates.has_retractions(changes)
                if retracts:
                    await self._inputs.check(id, step.since + 1, time)  # later operators do not check
                parts.append(self._selected(changes, version))
                is_all = len({*self._source.positions}) == changes.num_columns - 1  # then rows remain distinct
                is_consolidated &= is_all or not (retracts or self._merges)
            lower = time + 1
        found = pa.concat_tables(parts)
        return found if is_consolidated else await in_thread(updates.consolidate, found)

    def _selected(self, changes: pa.Table, version: int) -> pa.Table:
        columns = [changes.column(position) for position in self._source.positions]
        versions = pa.array(np.full(changes.num_rows, version))
        return pa.table([*columns, versions, changes[DIFF]], schema=self.schema)


class ConstantOperator(Operator):
    """Rows that the hydration returns, and that never change."""

    def __init__(self, node: Constant, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._constant = node

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        if step.since is not None:
            return self.no_changes
        found = await self._run(self._constant.sql, {})
        ones = pa.array(np.ones(found.num_rows, np.int64))
        # A result without columns has no number of rows: Spark returns a column that the node does not have.
        rows = self._result(found if self.node.schema.names else found.select([]), [])
        return pa.table([*rows.columns, ones, ones], schema=self.schema)


class LinearOperator(Operator):
    """Filters, projections and unnest: `Δf(A) = f(ΔA)`, without state."""

    row_cost, rows_per_change = 0.6, 1.0

    def __init__(self, node: Linear, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._linear = node
        self._scan = node.scan
        if node.scan is not None:
            width = len(node.input.schema)
            self._scan = replace(node.scan, columns=(*node.scan.columns, width, width + 1))

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        return () if self._scan is not None else [(self._linear.sql, [changes_schema(self._linear.input)])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        if changes.num_rows == 0:
            return self.no_changes
        if self._scan is not None:
            found = self._scan.rows(changes, Bindings())
        else:
            found = await self._run(self._linear.sql, {"d0": changes})
        return await in_thread(consolidated, self._result(found, (VERSION_FIELD, DIFF_FIELD)), step)


class TemporalOperator(Operator):
    """Emits a change at `max(lower, now)` and its negation at `upper`. Requires steps of one time each."""

    def __init__(self, node: Temporal, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._temporal = node
        self._buffer = TemporalBuffer(pa.schema([*node.schema, DIFF_FIELD]))
        self._new_rows: pa.Table | None = None

    @property
    def next_time(self) -> Timestamp | None:
        time = self._buffer.next_time
        return None if time is None else Timestamp(time)

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        return [(self._temporal.sql, [changes_schema(self._temporal.input)])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        (now,) = step.times
        parts = [] if step.since is None else [self._buffer.due(now)]
        if changes.num_rows:
            found = await self._run(self._temporal.sql, {"d0": changes})
            rows = self._result(found, (*_BOUND_FIELDS, VERSION_FIELD, DIFF_FIELD))
            lower, upper = (rows[field.name].to_numpy() for field in _BOUND_FIELDS)
            self._new_rows = rows.filter(pa.array(np.maximum(lower, now) < upper))
            parts.append(
                self._new_rows.filter(pc.less_equal(self._new_rows["lower"], now)).select(self._buffer.schema.names)
            )
        found = pa.concat_tables([self._buffer.schema.empty_table(), *parts])
        return await in_thread(consolidated, versioned(found, 1), step)

    def roll_back(self) -> None:
        super().roll_back()
        self._new_rows = None

    async def commit(self, step: Step) -> None:
        await super().commit(step)
        (now,) = step.times
        self._buffer.drop(now)
        if self._new_rows is not None:
            bounded, self._new_rows = self._new_rows, None
            rows = bounded.select(self._buffer.schema.names)
            lower, upper = (bounded[field.name].to_numpy() for field in _BOUND_FIELDS)
            later, ends = lower > now, upper < LAST
            self._buffer.insert(rows.filter(pa.array(later)), lower[later])
            self._buffer.insert(updates.negate(rows.filter(pa.array(ends))), upper[ends])


class ConcatOperator(Operator):
    """UNION ALL: `Δ(A + B) = ΔA + ΔB`."""

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        named = (changes.rename_columns(self.schema.names).cast(self.schema) for changes in inputs)
        return await in_thread(consolidated, pa.concat_tables(named), step)
