"""Distinct values of several subsets of rows: keeps a multiplicity per value and subset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.updates import DIFF
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.distinct import RunningTotals, by_row_and_version
from server.dataflow.operators.operator import Operator, OperatorContext, Step, key_hashes_of, names_of, old_rows
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import VERSION, DistinctValues
from server.runtime.threads import in_thread


class DistinctValuesOperator(Operator):
    """Arranges each value of a key with its multiplicities in the subsets as columns."""

    row_cost, rows_per_change = 2.0, 1.0

    def __init__(self, node: DistinctValues, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._values = node
        self._everything = tuple(range(len(node.key) + 1))
        self._rows = pa.schema(list(node.schema)[: len(self._everything)])  # the key and the value
        self._counts = [f"count{number}" for number in range(len(node.members))]
        counted = pa.schema([*self._rows, *(pa.field(name, pa.int64()) for name in self._counts)])
        self._own = [context.shared.arranger.arrangement(ByKey(names_of(self._everything)), counted)]

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        return [(column_names(self.node, self._everything), self._own[0])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        values, is_member = await in_thread(self._selected, changes)
        if values.num_rows == 0:
            return self.no_changes
        key_hashes = await in_thread(key_hashes_of, step, [self._everything], values)
        held = await old_rows(self._own[0], key_hashes, step)
        self._step_cost.add(held.num_rows + values.num_rows, self.row_cost, self.rows_per_change)
        found, pending = await in_thread(self._changes, held, values, is_member)
        self._pending.append((self._own[0], step.times[-1], pending))
        return found

    def _selected(self, changes: pa.Table) -> tuple[pa.Table, NDArray[np.bool_]]:
        """The key, the value, version and diff of the rows in a subset, and their membership by subset."""
        type = self._rows.types[-1]  # numerics may have different precisions
        members = [
            column if column.type == type else column.cast(type)
            for column in (changes.column(position) for position in self._values.members)
        ]
        is_member = np.stack([np.asarray(column.is_valid()) for column in members])
        key = [changes.column(position) for position in self._values.key]
        columns = [*key, pc.coalesce(*members), changes[VERSION], changes[DIFF]]
        rows = pa.table(columns, names=[*self._rows.names, VERSION, DIFF])
        is_any = is_member.any(axis=0)
        return (rows, is_member) if is_any.all() else (rows.filter(pa.array(is_any)), is_member[:, is_any])

    def _changes(self, held: pa.Table, changes: pa.Table, is_member: NDArray[np.bool_]) -> tuple[pa.Table, pa.Table]:
        """The node's changes, and those of the state. `held`: the old state of the changed values."""
        rows = pa.concat_tables([held.select(self._rows.names), changes.select(self._rows.names)])
        versions = np.concatenate([np.zeros(held.num_rows, np.int64), changes[VERSION].to_numpy()])
        numbers = updates.row_numbers(rows)
        order = by_row_and_version(numbers, versions)
        ordered, ordered_versions, diffs = numbers[order], versions[order], changes[DIFF].to_numpy()
        found, after = [], []
        changed: NDArray[np.bool_] | None = None
        for number, name in enumerate(self._counts):
            multiplicities = np.concatenate([held[name].to_numpy(), diffs * is_member[number]])
            totals = RunningTotals(ordered, ordered_versions, multiplicities[order])
            if totals.after.min() < 0:
                raise updates.NegativeCount("of an operator's input")
            flips = np.flatnonzero((totals.versions > 0) & ((totals.after > 0) != (totals.before > 0)))
            signs = np.where(totals.after[flips] > 0, 1, -1)
            found.append((order[totals.ends[flips]], np.full(len(flips), number), totals.versions[flips], signs))
            own = totals.is_last & (totals.after != totals.at_zero)
            changed = own if changed is None else changed | own
            after.append(totals.after)
        assert changed is not None
        at, member, version, sign = (np.concatenate(parts) for parts in zip(*found, strict=True))
        columns = rows.take(pa.array(at)).columns
        emitted = pa.table([*columns, *map(pa.array, (member, version, sign))], schema=self.schema)

        of_last = order[totals.ends]
        removed = held.filter(pa.array(totals.of_rows(changed, order)[: held.num_rows]))
        added = np.flatnonzero(changed & np.any([counts > 0 for counts in after], axis=0))
        now = rows.take(pa.array(of_last[added]))
        counted = pa.table([*now.columns, *(pa.array(c[added]) for c in after)], schema=self._own[0].schema)
        return emitted, pa.concat_tables([updates.with_diff(counted, 1), updates.negate(removed)])
