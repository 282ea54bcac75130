"""Exact sums and counts by key, kept up by adding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.updates import DIFF, DIFF_FIELD
from server.dataflow.arrangement import Arrangement
from server.dataflow.explained import called
from server.dataflow.nodes import (
    VERSION,
    Totals,
)
from server.dataflow.operator import (
    VERSION_FIELD,
    Operator,
    Place,
    Tick,
    check_counts,
    codes_of,
    differences,
    slice_of,
)
from server.dataflow.run import ByKey
from server.dataflow.threads import in_thread


class TotalsOperator(Operator):
    """Exact sums and counts by key, kept: what comes and goes is added."""

    def __init__(self, node: Totals, place: Place) -> None:
        super().__init__(node, place.engine)
        self._totals = node
        self._width = len(node.key)
        key = ByKey(tuple(f"c{i}" for i in range(self._width)))
        self._own = [place.shared.arranger.arrangement(key, node.state)]
        self._key_names = called(node.input, node.key)
        numbers = list(node.state)[self._width :]
        named = [pa.field(f"n{i}", field.type) for i, field in enumerate(numbers)]
        self._lines = pa.schema([*node.input.schema, VERSION_FIELD, DIFF_FIELD, *named])

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        empty_at_first = tick.since is None and not self._width
        if changes.num_rows == 0 and not empty_at_first:
            return self.none
        codes = await in_thread(codes_of, tick, [self._totals.key], changes)
        before = await slice_of(self._own[0], codes, tick)
        lines = await in_thread(self._read, tick, before, changes)
        found = await self._run(self._totals.sql, {"d0": lines})
        state = [pa.field(f"s{i}", field.type) for i, field in enumerate(self._totals.state)]
        found = self._result(found, [*state, VERSION_FIELD])
        return await in_thread(self._told, tick, before, found)

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        return [(self._key_names, self._own[0])]

    def _read(self, tick: Tick, before: pa.Table, changes: pa.Table) -> pa.Table:
        """What the statement reads; `before`: the state of the touched keys."""
        check_counts(before)
        state = updates.rows_of(before)
        if not self._width and tick.since is None:
            zeros = [pa.array([0], field.type) for field in self._totals.state]
            state = pa.table(zeros, schema=self._totals.state)
        single = _singly(changes)
        parts = [self._lines.empty_table()]
        for version in tick.versions:
            parts.append(self._state_lines(state, version))
            here = single.filter(pc.less_equal(single[VERSION], version)) if len(tick.times) > 1 else single
            if version and here.num_rows:
                parts.append(self._change_lines(here, version))
        return pa.concat_tables(parts)

    def _state_lines(self, state: pa.Table, version: int) -> pa.Table:
        count = state.num_rows
        columns = {f"c{place}": state.column(i) for i, place in enumerate(self._totals.key)}
        columns[VERSION] = pa.array(np.full(count, version))
        columns[DIFF] = pa.array(np.zeros(count, np.int64))
        columns |= {f"n{i}": column for i, column in enumerate(state.columns[self._width :])}
        return pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in self._lines], schema=self._lines)

    def _change_lines(self, changes: pa.Table, version: int) -> pa.Table:
        count = changes.num_rows
        own = [*changes.columns[:-2], pa.array(np.full(count, version)), changes[DIFF]]
        nulls = [pa.nulls(count, field.type) for field in list(self._lines)[len(own) :]]
        return pa.table([*own, *nulls], schema=self._lines)

    def _told(self, tick: Tick, before: pa.Table, found: pa.Table) -> pa.Table:
        rows = found[f"s{self._width}"]
        if found.num_rows and pc.min(rows).as_py() < 0:
            raise updates.NegativeCount("of a group")
        last = found.filter(pc.equal(found[VERSION], len(tick.times)))
        after = last.select([f"s{i}" for i in range(len(self._totals.state))]).rename_columns(self._totals.state.names)
        change = updates.with_diff(after, 1)
        if before.num_rows:
            change = updates.consolidate(pa.concat_tables([change, updates.negate(before)]))
        self._pending.append((self._own[0], tick.times[-1], change))
        return differences(found.select([*self.node.schema.names, VERSION]), tick, self.schema)


def _singly(changes: pa.Table) -> pa.Table:
    """Lines with a diff of 1 or -1, each as often as it counts."""
    diffs = changes[DIFF].to_numpy()
    counts = np.abs(diffs)
    if (counts == 1).all():
        return changes
    single = changes.take(pa.array(np.repeat(np.arange(len(diffs)), counts)))
    return single.set_column(single.num_columns - 1, DIFF_FIELD, pa.array(np.sign(np.repeat(diffs, counts))))
