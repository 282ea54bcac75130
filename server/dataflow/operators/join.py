"""Inner joins: Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB, with B' = B + ΔB."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from catalog.updates import DIFF_FIELD
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.operator import (
    VERSION_FIELD,
    ArrangingOperator,
    OperatorContext,
    Step,
    changes_schema,
    consolidated,
    key_hashes_of,
    names_of,
    old_rows,
    versioned,
)
from server.dataflow.plan.nodes import InnerJoin, Statement
from server.runtime.threads import in_thread

PAIRS_MAX = 1_000_000  # pairs of old rows that a statement may compare, although none of them is in the result


class JoinOperator(ArrangingOperator):
    """Looks up the rows of each side that have the other side's changed keys.

    One statement joins (A + ΔA) with (B + ΔB) and drops the pairs of old rows, A ⋈ B. If these are too many, there are
    two statements, for ΔA ⋈ B' and A ⋈ ΔB.
    """

    row_cost = 1.0

    def __init__(self, node: InnerJoin, context: OperatorContext) -> None:
        super().__init__(node, node.inputs, context, [ByKey(names_of(key)) for key in node.keys])
        self._join = node

    @property
    def statements(self) -> Sequence[tuple[Statement, Sequence[pa.Schema]]]:
        return [(self._join.sql, [changes_schema(side) for side in self._join.inputs])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        if not any(changes.num_rows for changes in inputs):
            await self._add_inserts(step, inputs)
            return self.no_changes
        key_hashes = [
            await in_thread(key_hashes_of, step, [k], c) for c, k in zip(inputs, self._join.keys, strict=True)
        ]
        probed = [(a.arrangement, other) for a, other in zip(self._arranged, reversed(key_hashes), strict=True)]
        if step.since is not None:
            found_rows = sum(arrangement.entries(other) for arrangement, other in probed)
            self._step_cost.expect(found_rows + sum(changes.num_rows for changes in inputs), self.row_cost)
        await self._add_inserts(step, inputs)
        found = await asyncio.gather(*(old_rows(arrangement, other, step) for arrangement, other in probed))
        before = [versioned(part, 0) for part in found]
        pairs = before[0].num_rows * before[1].num_rows
        if pairs > PAIRS_MAX and len(np.intersect1d(key_hashes[0], key_hashes[1], assume_unique=True)):
            # keys with many rows change on both sides: two statements that compare no pairs of old rows
            tasks = [(inputs[0], pa.concat_tables([before[1], inputs[1]])), (before[0], inputs[1])]
        else:
            left, right = (pa.concat_tables([b, c]) for b, c in zip(before, inputs, strict=True))
            tasks = [(left, right)]
        pairs_of = [await self._computed(left, right) for left, right in tasks]
        return await in_thread(consolidated, pa.concat_tables(pairs_of), step)

    async def _computed(self, left: pa.Table, right: pa.Table) -> pa.Table:
        if left.num_rows == 0 or right.num_rows == 0:
            return self.no_changes
        found = await self._run(self._join.sql, {"d0": left, "d1": right})
        return self._result(found, (VERSION_FIELD, DIFF_FIELD))
