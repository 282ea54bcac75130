"""Recomputation by key: Δf(A) = f(A'[K]) - f(A[K]), with K the keys of ΔA."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.updates import DIFF
from protocol.columnar.hashing import Hashes, are_among, distinct_hashes, key_codes
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.operator import (
    VERSION_FIELD,
    ArrangingOperator,
    OperatorContext,
    Step,
    key_hashes_of,
    names_of,
    old_rows,
    sorting_of,
)
from server.dataflow.operators.versions import (
    Touched,
    replacements,
    rows_by_version,
    signed_differences,
    touched_keys,
)
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import VERSION, DistinctRows, NeededRows, Node, Recompute, Rows, Statement
from server.runtime.threads import in_thread

STORED_ROW_COST = 1.0  # of a row that is stored and not read by a statement, in units of `StepCost`
MARK_FIELD = pa.field("mark", pa.bool_())


class RecomputeOperator(ArrangingOperator):
    """Computes the rows of the touched keys before and after each version, with the signed version as `v`."""

    def __init__(self, node: Recompute, context: OperatorContext) -> None:
        super().__init__(node, node.branches, context, [sorting_of(node.top_k, key) for key in node.keys])
        self._recompute = node
        self._results: Arrangement | None = None
        if node.results_by is not None:
            self._results = context.shared.arranger.arrangement(ByKey(names_of(node.results_by)), node.schema)
            self._own.append(self._results)

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        found = super().arrangements
        if self._results is not None and self._recompute.results_by is not None:
            found.append((column_names(self.node, self._recompute.results_by), self._results))
        return found

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        mark = [MARK_FIELD] if self._recompute.marked else []
        branches = self._recompute.branches
        return [(self._recompute.sql, [pa.schema([*branch.schema, *mark, VERSION_FIELD]) for branch in branches])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        node = self._recompute
        branches, present = inputs[: len(node.branches)], dict(zip(node.inputs, inputs, strict=True))
        if not any(changes.num_rows for changes in branches) and not (node.marked and step.since is None):
            await self._add_inserts(step, branches)
            return self.no_changes
        key_hashes = [
            await in_thread(key_hashes_of, step, [key], c) for c, key in zip(branches, node.keys, strict=True)
        ]
        alone = [_alone(step, key_hashes, number, needed, present) for number, needed in enumerate(node.needed_rows)]
        every = _all(key_hashes)
        asked = [every[~are_among(every, own)] for own in alone]
        if node.top_k is None and step.since is not None:
            found_rows = sum(a.arrangement.entries(own) for a, own in zip(self._arranged, asked, strict=True))
            changed = sum(changes.num_rows for changes in branches)
            read_rows = found_rows if node.results_by is not None else 2 * found_rows
            self._step_cost.expect(max(read_rows, changed), self.row_cost)
        elif node.top_k is not None and not any(node.keys):  # its statement reads few rows, but all are stored
            self._step_cost.add(sum(changes.num_rows for changes in branches), STORED_ROW_COST)
        await self._add_inserts(step, branches)
        befores = await asyncio.gather(
            *(self._before(step, i, asked[i], changes) for i, changes in enumerate(branches))
        )
        touched = await in_thread(touched_keys, step, node.keys, branches)
        views = {}
        for number, (before, changes) in enumerate(zip(befores, branches, strict=True)):
            if len(alone[number]):
                hashes = key_codes(changes, names_of(node.keys[number]))
                own = changes.filter(pa.array(are_among(hashes, alone[number])))
                before = pa.concat_tables([before, _rows_that_changed(own, node.needed_rows[number])])
            views[f"d{number}"] = await in_thread(self._versions, step, number, before, changes, touched)
        if self._results is not None:
            return await self._replaced(step, self._results, every, touched, views)
        if not node.marked and not any(view.num_rows for view in views.values()):
            return self.no_changes
        found = self._result(await self._run(node.sql, views), [VERSION_FIELD])
        return await in_thread(signed_differences, found, step, self.schema)

    async def _replaced(
        self,
        step: Step,
        results: Arrangement,
        key_hashes: Hashes,
        touched: Sequence[Touched],
        views: Mapping[str, pa.Table],
    ) -> pa.Table:
        """The changes from the kept results of the touched keys to those of the rows in `views`."""
        node = self._recompute
        assert node.results_by is not None
        old = await old_rows(results, key_hashes, step)
        found = self.no_changes.drop_columns([DIFF])
        if any(view.num_rows for view in views.values()):
            found = self._result(await self._run(node.sql, views), [VERSION_FIELD])
        changes = await in_thread(replacements, found, old, node.results_by, touched, step, self.schema)
        kept = changes.drop_columns([VERSION])
        if len(step.times) > 1:
            kept = await in_thread(updates.consolidate, kept)
        if kept.num_rows:
            self._pending.append((results, step.times[-1], kept))
        return changes

    def _versions(
        self, step: Step, number: int, before: pa.Table, changes: pa.Table, touched: Sequence[Touched]
    ) -> pa.Table:
        """The rows of an input before and after each version, as the statement reads them (see `Recompute`)."""
        node = self._recompute
        with_before = node.results_by is None
        found = rows_by_version(before, changes, node.keys[number], touched, step, node.top_k, with_before=with_before)
        rows = updates.expand(found)
        return _marked(rows, touched, step) if node.marked else rows

    async def _before(self, step: Step, number: int, key_hashes: Hashes, changes: pa.Table) -> pa.Table:
        arranged, top_k = self._arranged[number], self._recompute.top_k
        if top_k is None:
            return await old_rows(arranged.arrangement, key_hashes, step)
        return await arranged.first(top_k, self._recompute.keys[number], key_hashes, changes, step)


def _marked(rows: pa.Table, touched: Sequence[Touched], step: Step) -> pa.Table:
    """The rows with a mark, and for each version one more row without (see `Recompute`)."""
    versions = [one.version for one in touched]
    if step.since is not None:
        versions += [-version for version in versions]
    nulls = [pa.nulls(len(versions), field.type) for field in list(rows.schema)[:-1]]
    more = pa.table([*nulls, pa.array(versions, pa.int64())], schema=rows.schema)
    marks = pa.array(np.arange(rows.num_rows + len(versions)) < rows.num_rows)
    both = pa.concat_tables([rows, more])
    return both.add_column(both.num_columns - 1, MARK_FIELD, marks)


def _all(key_hashes: Sequence[Hashes]) -> Hashes:
    return distinct_hashes(np.concatenate(key_hashes))


def _alone(
    step: Step, key_hashes: Sequence[Hashes], number: int, needed: NeededRows, changes_of: Mapping[Node, pa.Table]
) -> Hashes:
    """The keys touched by branch `number` only, for which its changed rows suffice (see `NeededRows`)."""
    if needed is Rows.ALL:
        return key_hashes[number][:0]
    others = [of_branch for i, of_branch in enumerate(key_hashes) if i != number]
    if isinstance(needed, DistinctRows):
        others.append(key_hashes_of(step, [tuple(range(len(needed.positions)))], changes_of[needed]))
    own = key_hashes[number]
    return own[~are_among(own, _all(others))]


def _rows_that_changed(changes: pa.Table, needed: NeededRows) -> pa.Table:
    """A substitute for the old rows of keys for which the changed rows suffice: the rows that `changes` retract.

    With these, no multiplicity becomes negative. Copies that are not in the old state are present in every version and
    cancel. With a `DistinctRows`, each changed row is added once more, so that the key is present in every version.
    """
    retracted = updates.negate(changes.filter(pc.less(changes[DIFF], 0)).drop_columns([VERSION]))
    if not isinstance(needed, DistinctRows):
        return retracted
    shown = updates.with_diff(changes.drop_columns([VERSION, DIFF]), 1)
    return pa.concat_tables([retracted, shown])
