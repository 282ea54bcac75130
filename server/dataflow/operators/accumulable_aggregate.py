"""Exact sums and counts by key: S' = S + Σ diff * value."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.updates import DIFF, DIFF_FIELD
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.operator import (
    VERSION_FIELD,
    ArrangedInput,
    Operator,
    OperatorContext,
    Step,
    consolidated,
    key_hashes_of,
    names_of,
    old_rows,
    sorting_of,
)
from server.dataflow.operators.versions import check_counts, first_rows, rows_by_version, touched_keys
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import MEMBER, VERSION, AccumulableAggregate, Statement
from server.runtime.threads import in_thread

BRANCH = "branch"
BRANCH_FIELD = pa.field(BRANCH, pa.int64(), nullable=False)
NEXT = "next"  # the next version with a row of the same key


class AccumulableAggregateOperator(Operator):
    """Keeps exact sums and counts by key and adds the changes. Looks up least and greatest values in arrangements."""

    def __init__(self, node: AccumulableAggregate, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._aggregate = node
        self.row_cost = 3.0
        self.rows_per_change = 1.5 + len(node.top_rows)  # the group's state and first values
        self._width = len(node.key)
        self._key = tuple(range(self._width))  # the positions of the key in the state and in `_top_rows`
        self._state = context.shared.arranger.arrangement(ByKey(names_of(self._key)), node.state)
        self._top_rows = [
            ArrangedInput(context, distinct, sorting_of(top_k, self._key)) for distinct, top_k in node.top_rows
        ]
        self._held: Sequence[pa.Table] = ()  # the old state and first values of the touched keys
        self._own = [self._state, *(arranged.arrangement for arranged in self._top_rows)]
        numbers = list(node.state)[self._width :]
        named = [pa.field(f"n{i}", field.type) for i, field in enumerate(numbers)]
        self._row_schema = pa.schema([*node.input.schema, VERSION_FIELD, DIFF_FIELD, BRANCH_FIELD, *named])

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        return [(sql, [self._row_schema]) for sql in (self._aggregate.one_version_sql, self._aggregate.sql)]

    async def look_up(self, step: Step, changes: pa.Table) -> None:
        """Looks up the old state and first values of the touched keys.

        At most as many distinct values of a key are retracted as rows. So the first values can be looked up by the
        changes of the rows, before those of the values are known.
        """
        if changes.num_rows == 0 and step.since is not None:
            return
        key = self._aggregate.key
        key_hashes = await in_thread(key_hashes_of, step, [key], changes)
        if step.since is not None:
            groups = 2 * self._state.entries(key_hashes)
            self._step_cost.expect(groups * (1 + len(self._top_rows)) + changes.num_rows, self.row_cost)
        top_rows = (
            arranged.first(top_k, key, key_hashes, changes, step)
            for arranged, (_, top_k) in zip(self._top_rows, self._aggregate.top_rows, strict=True)
        )
        self._held = await asyncio.gather(old_rows(self._state, key_hashes, step), *top_rows)

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        changes, *others = inputs
        is_hydrated_without_key = step.since is None and not self._width
        if changes.num_rows == 0 and not is_hydrated_without_key:
            return self.no_changes
        before, *top_rows = self._held
        self._held = ()
        distinct_changes, top_changes = others[: len(self._aggregate.distinct)], others[len(self._aggregate.distinct) :]
        for arranged, of_branch in zip(self._top_rows, top_changes, strict=True):
            self._pending += await arranged.inserts(of_branch, step)
        if step.since is None and self._aggregate.hydration_sql is not None and changes.num_rows:
            rows = (
                updates.expand(changes.drop_columns([VERSION]))
                if self._aggregate.input.schema
                else changes.select([VERSION])
            )
            return await self._computed(self._aggregate.hydration_sql, rows, step, before)
        rows = await in_thread(self._statement_rows, step, before, changes, distinct_changes, top_rows, top_changes)
        statement = self._aggregate.one_version_sql if len(step.times) == 1 else self._aggregate.sql
        return await self._computed(statement, rows, step, before)

    async def _computed(self, statement: Statement, rows: pa.Table, step: Step, before: pa.Table) -> pa.Table:
        found = await self._run(statement, {"d0": rows})
        state = [pa.field(f"s{i}", field.type) for i, field in enumerate(self._aggregate.state)]
        found = self._result(found, [*state, VERSION_FIELD, pa.field(NEXT, pa.int64())])
        changes, pending = await in_thread(self._changes, step, before, found)
        self._pending.append((self._state, step.times[-1], pending))
        return changes

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        of_values = [
            (column_names(distinct, range(len(distinct.positions))), arranged.arrangement)
            for arranged, (distinct, _) in zip(self._top_rows, self._aggregate.top_rows, strict=True)
        ]
        return [(column_names(self._aggregate.input, self._aggregate.key), self._state), *of_values]

    def _statement_rows(
        self,
        step: Step,
        before: pa.Table,
        changes: pa.Table,
        distinct_changes: Sequence[pa.Table],
        top_rows: Sequence[pa.Table],
        top_changes: Sequence[pa.Table],
    ) -> pa.Table:
        """The rows d0 that the node's statement reads. `before`, `top_rows`: the old state and the first values."""
        state = self._state_rows(step, before)
        changed = self._changed_rows(0, range(len(self._aggregate.input.schema)), changes)
        distinct = self._distinct_rows(distinct_changes)
        extremes = self._extreme_rows(step, changes, top_rows, top_changes)
        return pa.concat_tables([*state, changed, *distinct, *extremes])

    def _state_rows(self, step: Step, before: pa.Table) -> list[pa.Table]:
        """The old state, in version 0, and also in version 1 if the statement computes no running totals."""
        check_counts(before)
        schema = self._aggregate.state
        state = updates.rows_of(before)
        if not self._width and step.since is None:
            state = pa.table([pa.array([0], field.type) for field in schema], schema=schema)
        numbers = {f"n{i}": column for i, column in enumerate(state.columns[self._width :])}
        versions = [] if step.since is None else [0]
        if len(step.times) == 1:  # `one_version_sql` computes no running totals
            versions.append(1)
        key = state.columns[: self._width]
        return [
            self._tagged(0, self._aggregate.key, key, np.zeros(len(state)), version, numbers) for version in versions
        ]

    def _distinct_rows(self, distinct_changes: Sequence[pa.Table]) -> list[pa.Table]:
        """The changes of distinct values, by branch, and those of their counts."""
        parts = []
        counted: list[tuple[pa.Table, NDArray[np.int64]]] = []
        for (_, branches), changes in zip(self._aggregate.distinct, distinct_changes, strict=True):
            rows, members = _by_member(changes, len(branches))
            counts = np.array([-1 if branch.count is None else branch.count for branch in branches])[members]
            if (is_counted := counts >= 0).any():
                counted.append((_filtered(rows, is_counted), counts[is_counted]))
            parts += [
                self._changed_rows(branch.number, branch.positions, _filtered(rows, members == number))
                for number, branch in enumerate(branches)
                if branch.count is None
            ]
        return [*parts, self._counted(counted)] if counted else parts

    def _extreme_rows(
        self, step: Step, changes: pa.Table, top_rows: Sequence[pa.Table], top_changes: Sequence[pa.Table]
    ) -> Iterator[pa.Table]:
        """The first values of the touched keys in each version, and, except in hydration, in version 0."""
        node = self._aggregate
        touched = touched_keys(step, [node.key], [changes])
        first_branch = 1 + sum(len(branches) for _, branches in node.distinct)
        each = zip(node.top_rows, top_rows, top_changes, strict=True)
        for branch, ((distinct, top_k), held, new) in enumerate(each, first_branch):
            rows = updates.rows_of(rows_by_version(held, new, self._key, touched, step, top_k, with_before=False))
            yield self._looked_up(branch, distinct.positions, rows.drop_columns([VERSION]), rows[VERSION])
            if step.since is not None:
                old = updates.rows_of(first_rows(held, self._key, top_k))
                yield self._looked_up(branch, distinct.positions, old, np.zeros(len(old), np.int64))

    def _looked_up(
        self, branch: int, positions: Sequence[int], rows: pa.Table, versions: pa.ChunkedArray | NDArray[np.int64]
    ) -> pa.Table:
        """Rows of `top_rows` in these versions."""
        return self._tagged(branch, positions, rows.columns, np.zeros(len(rows)), np.asarray(versions))

    def _counted(self, parts: Sequence[tuple[pa.Table, NDArray[np.int64]]]) -> pa.Table:
        """The changes of counts of distinct values: one row for each key and version.

        `parts`: changes of values, each with the index of its count among the numbers of the state.
        """
        named = [f"c{position}" for position in self._key]
        keys = pa.concat_tables([rows.select([*named, VERSION]) for rows, _ in parts])
        counts = np.concatenate([counts for _, counts in parts])
        diffs = np.concatenate([rows[DIFF].to_numpy() for rows, _ in parts])
        groups = pa.array(updates.row_numbers(keys)).dictionary_encode()
        group, size = groups.indices.to_numpy(), len(groups.dictionary)
        first = np.empty(size, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]
        fields = list(self._aggregate.state)[self._width :]
        sums = np.zeros((len(fields), size), np.int64)
        np.add.at(sums, (counts, group), diffs)
        numbers = {
            f"n{i}": pa.array(own).cast(field.type) for i, (own, field) in enumerate(zip(sums, fields, strict=True))
        }
        rows = keys.take(pa.array(first))
        versions = rows[VERSION].to_numpy()
        return self._tagged(0, self._aggregate.key, rows.columns[: self._width], np.zeros(size), versions, numbers)

    def _changed_rows(self, branch: int, positions: Sequence[int], changes: pa.Table) -> pa.Table:
        """One row with diff 1 or -1 for each copy of a row in `changes`."""
        diffs = changes[DIFF].to_numpy()
        counts = np.abs(diffs)
        if not (counts == 1).all():
            single = np.repeat(np.arange(len(diffs)), counts)
            diffs, changes = np.sign(diffs[single]), changes.take(pa.array(single))
        columns = changes.drop_columns([VERSION, DIFF]).columns
        return self._tagged(branch, positions, columns, diffs, changes[VERSION].to_numpy())

    def _tagged(
        self,
        branch: int,
        positions: Sequence[int],
        columns: Sequence[pa.ChunkedArray],
        diffs: NDArray[Any],
        version: int | NDArray[np.int64],
        numbers: Mapping[str, pa.Array | pa.ChunkedArray] = MappingProxyType({}),
    ) -> pa.Table:
        count = len(diffs)
        known: dict[str, Any] = {f"c{position}": column for position, column in zip(positions, columns, strict=True)}
        known[VERSION] = pa.array(np.broadcast_to(np.int64(version), count))
        known[DIFF] = pa.array(diffs.astype(np.int64))
        known[BRANCH] = pa.array(np.full(count, branch))
        known |= numbers
        columns_in_order = []
        for field in self._row_schema:
            column = known[field.name] if field.name in known else pa.nulls(count, field.type)
            # numerics of `DistinctValues` may have another precision
            columns_in_order.append(column if column.type == field.type else column.cast(field.type))
        return pa.table(columns_in_order, schema=self._row_schema)

    def _changes(self, step: Step, before: pa.Table, found: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The node's changes, and those of the state. `found`: the statement's result."""
        rows = found[f"s{self._width}"]
        if found.num_rows and pc.min(rows).as_py() < 0:
            raise updates.NegativeCount("of a group")
        ends = found[NEXT].is_null()
        state_names = [f"s{i}" for i in range(len(self._aggregate.state))]
        after = found.filter(ends).select(state_names).rename_columns(self._aggregate.state.names)
        change = updates.with_diff(after, 1)
        if before.num_rows:
            change = updates.consolidate(pa.concat_tables([change, updates.negate(before)]))
        rows = found.select([*self.node.schema.names, VERSION, NEXT])
        inserted = rows.filter(pc.greater(rows[VERSION], 0)).drop_columns([NEXT])
        retracted = rows.filter(pc.invert(ends)).drop_columns([VERSION])
        differences = [
            updates.with_diff(inserted, 1),
            updates.with_diff(retracted.rename_columns(inserted.column_names), -1),
        ]
        return consolidated(pa.concat_tables([part.cast(self.schema) for part in differences]), step), change


def _by_member(changes: pa.Table, subsets: int) -> tuple[pa.Table, NDArray[np.int64]]:
    """The changes of a node with distinct values without the column `MEMBER`, and this column: 0 if there is none."""
    if subsets == 1:
        return changes, np.zeros(changes.num_rows, np.int64)
    return changes.drop_columns([MEMBER]), changes[MEMBER].to_numpy()


def _filtered(rows: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))
