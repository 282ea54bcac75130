"""DISTINCT: keeps a multiplicity per row and emits a change when it becomes or ceases to be positive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.updates import DIFF
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.operator import (
    Operator,
    OperatorContext,
    Step,
    key_hashes_of,
    names_of,
    old_rows,
)
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import VERSION, DistinctRows
from server.runtime.threads import in_thread

COUNT = "count"


class DistinctOperator(Operator):
    """Arranges each distinct row with its multiplicity as a column. The cost of a step depends only on the changes."""

    row_cost, rows_per_change = 1.5, 1.0

    def __init__(self, node: DistinctRows, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._positions = node.positions
        self._drops_nulls = node.drops_nulls
        self._everything = tuple(range(len(node.positions)))
        counted = node.schema.append(pa.field(COUNT, pa.int64()))
        self._own = [context.shared.arranger.arrangement(ByKey(names_of(self._everything)), counted)]

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        return [(column_names(self.node, self._everything), self._own[0])]

    async def compute(self, step: Step, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        if changes.num_rows == 0:
            return self.no_changes
        changes = pa.table(
            [*(changes.column(position) for position in self._positions), changes[VERSION], changes[DIFF]],
            schema=self.schema,
        )
        if self._drops_nulls:
            changes = changes.filter(changes.column(len(self._positions) - 1).is_valid())
            if changes.num_rows == 0:
                return self.no_changes
        key_hashes = await in_thread(key_hashes_of, step, [self._everything], changes)
        held = await old_rows(self._own[0], key_hashes, step)
        self._step_cost.add(held.num_rows + changes.num_rows, self.row_cost, self.rows_per_change)
        found, pending = await in_thread(self._changes, step, held, changes)
        self._pending.append((self._own[0], step.times[-1], pending))
        return found

    def _changes(self, step: Step, held: pa.Table, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The node's changes, and those of the state. `held`: the old state of the changed rows.

        Sorts the counts and the changes by row and version. Then the multiplicities are running totals.
        """
        names = self.node.schema.names
        rows = pa.concat_tables([held.select(names), changes.select(names)])
        versions = np.concatenate([np.zeros(held.num_rows, np.int64), changes[VERSION].to_numpy()])
        # Arrow does not count the rows of concatenated tables without columns.
        numbers = updates.row_numbers(rows) if names else np.zeros(len(versions), np.int64)
        order = by_row_and_version(numbers, versions)
        totals = RunningTotals(numbers[order], versions[order], np.concatenate([held[COUNT], changes[DIFF]])[order])
        if totals.after.min() < 0:
            raise updates.NegativeCount("of an operator's input")
        flips = np.flatnonzero((totals.versions > 0) & ((totals.after > 0) != (totals.before > 0)))
        found = rows.take(pa.array(order[totals.ends[flips]]))
        signs = np.where(totals.after[flips] > 0, 1, -1)
        found = pa.table([*found.columns, pa.array(totals.versions[flips]), pa.array(signs)], schema=self.schema)

        changed = totals.is_last & (totals.after != totals.at_zero)
        removed = held.filter(pa.array(totals.of_rows(changed, order)[: held.num_rows]))
        added = np.flatnonzero(changed & (totals.after > 0))
        now = rows.take(pa.array(order[totals.ends[added]]))
        counted = pa.table([*now.columns, pa.array(totals.after[added])], schema=self._own[0].schema)
        return found, pa.concat_tables([updates.with_diff(counted, 1), updates.negate(removed)])


def by_row_and_version(numbers: NDArray[np.int64], versions: NDArray[np.int64]) -> NDArray[np.intp]:
    """The positions in the order of the row numbers, and of the versions of a row; changes of one version in any order.

    Sorting by one number for both is several times as fast as `lexsort`.
    """
    width = int(versions.max()) + 1
    if int(numbers.max()) < np.iinfo(np.int64).max // width:
        return np.argsort(numbers * width + versions)
    return np.lexsort((versions, numbers))


class RunningTotals:
    """The totals of changes that are sorted by row number and version, after each pair of a row and a version.

    All attributes have one element per pair: `ends`, the position of its last change; `versions`; `before` and `after`,
    the total of its row before and after the version; `at_zero`, that after version 0; `is_last`, whether no later
    version changes its row. There must be at least one change.
    """

    def __init__(self, numbers: NDArray[np.int64], versions: NDArray[np.int64], diffs: NDArray[np.int64]) -> None:
        ends_row = np.append(numbers[1:] != numbers[:-1], True)
        self.ends = np.flatnonzero(ends_row | np.append(versions[1:] != versions[:-1], True))
        self.versions, self.is_last = versions[self.ends], ends_row[self.ends]
        begins_row = np.append(True, self.is_last[:-1])
        first, row = np.flatnonzero(begins_row), np.cumsum(begins_row) - 1
        sums = np.cumsum(diffs)[self.ends]
        self.after = sums - np.append(0, sums[:-1])[first][row]
        self.before = np.where(begins_row, 0, np.append(0, self.after[:-1]))
        self.at_zero = np.where(self.versions[first] == 0, self.after[first], 0)[row]

    def of_rows(self, pairs: NDArray[np.bool_], order: NDArray[np.intp]) -> NDArray[np.bool_]:
        """A mask of all changes of the rows of which the last pair is in the mask `pairs`.

        `order`: the positions of the sorted changes. The result is in the order before they were sorted.
        """
        counts = np.diff(self.ends[self.is_last], prepend=-1)
        changes = np.empty(len(order), np.bool_)
        changes[order] = np.repeat(pairs[self.is_last], counts)
        return changes
