"""DISTINCT: keeps a multiplicity per row and emits a change when it becomes or ceases to be positive."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from catalog import updates
from catalog.updates import DIFF, DIFF_FIELD
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import ByKey
from server.dataflow.operators.operator import (
    Operator,
    OperatorContext,
    Tick,
    key_hashes_of,
    names_of,
    slice_of,
)
from server.dataflow.operators.versions import by_version, changed_rows, signed_differences, touched_keys
from server.dataflow.plan.description import column_names
from server.dataflow.plan.nodes import VERSION, DistinctRows
from server.runtime.threads import in_thread

COUNT = "count"


class DistinctOperator(Operator):
    """Arranges each distinct row with its multiplicity as a column. The cost of a step depends on the changes only."""

    def __init__(self, node: DistinctRows, context: OperatorContext) -> None:
        super().__init__(node, context)
        self._positions = node.positions
        self._everything = tuple(range(len(node.positions)))
        counted = node.schema.append(pa.field(COUNT, pa.int64()))
        self._own = [context.shared.arranger.arrangement(ByKey(names_of(self._everything)), counted)]

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        return [(column_names(self.node, self._everything), self._own[0])]

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        if changes.num_rows == 0:
            return self.none
        changes = pa.table(
            [*(changes.column(position) for position in self._positions), changes[VERSION], changes[DIFF]],
            schema=self.schema,
        )
        key_hashes = await in_thread(key_hashes_of, tick, [self._everything], changes)
        held = await slice_of(self._own[0], key_hashes, tick)
        found, pending = await in_thread(self._changes, tick, held, changes)
        self._pending.append((self._own[0], tick.times[-1], pending))
        return found

    def _changes(self, tick: Tick, held: pa.Table, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The node's changes, and those of the state. `held`: the old state of the changed rows."""
        names = self.node.schema.names
        before = pa.table([*held.select(names).columns, held[COUNT]], pa.schema([*self.node.schema, DIFF_FIELD]))
        if tick.since is None:
            changes = updates.consolidate(changes)
        touched = touched_keys(tick, [self._everything], [changes])
        changed = list(changed_rows(before, changes, self._everything, touched, tick, None))
        found = by_version(changed, tick, updates.rows_of)
        if len(tick.times) == 1:
            now = changed[0].after
        else:
            now = updates.consolidate(pa.concat_tables([before, changes.drop_columns([VERSION])]))
        counted = pa.table(now.columns, self._own[0].schema)
        pending = pa.concat_tables([updates.with_diff(counted, 1), updates.negate(held)])
        return signed_differences(found, tick, self.schema), updates.consolidate(pending)
