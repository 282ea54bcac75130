"""What is computed for the touched keys as they were and as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.hashing import Hashes
from catalog.updates import DIFF
from server.dataflow.nodes import (
    VERSION,
    Recompute,
)
from server.dataflow.operator import (
    VERSION_FIELD,
    ArrangingOperator,
    Place,
    Tick,
    check_counts,
    codes_of,
    differences,
    names_of,
    slice_of,
)
from server.dataflow.run import ByKey, ByOrder, Sorting
from server.dataflow.threads import in_thread


class RecomputeOperator(ArrangingOperator):
    """The touched keys, before and after."""

    def __init__(self, node: Recompute, place: Place) -> None:
        super().__init__(node, place, [_sorting(node, key) for key in node.keys])
        self._recompute = node

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        node = self._recompute
        await self._take(tick, inputs)
        if not any(changes.num_rows for changes in inputs) and not (node.marked and tick.since is None):
            return self.none
        codes = await in_thread(codes_of, tick, node.keys, *inputs)
        befores = await asyncio.gather(*(self._before(i, codes, changes, tick) for i, changes in enumerate(inputs)))
        views = {}
        for number, (before, changes) in enumerate(zip(befores, inputs, strict=True)):
            views[f"d{number}"] = await in_thread(self._lines, tick, number, before, changes)
        if not node.marked and not any(view.num_rows for view in views.values()):
            return self.none
        found = self._result(await self._run(node.sql, views), [VERSION_FIELD])
        return await in_thread(differences, found, tick, self.schema)

    def _lines(self, tick: Tick, number: int, before: pa.Table, changes: pa.Table) -> pa.Table:
        """The rows of an input in each version."""
        once = self._recompute.once[number]
        parts = []
        for version in tick.versions:
            now = before
            if version:
                here = changes.filter(pc.less_equal(changes[VERSION], version)) if len(tick.times) > 1 else changes
                now = pa.concat_tables([before, here.drop_columns([VERSION])])
                if tick.since is not None or once:
                    now = updates.consolidate(now)
                if self._recompute.first is not None:  # what goes from behind the first was not among them
                    now = now.filter(pc.greater(now[DIFF], 0))
            parts.append(self._at_version(now, once, version))
        return pa.concat_tables(parts)

    async def _before(self, number: int, codes: Hashes, changes: pa.Table, tick: Tick) -> pa.Table:
        arrangement, first = self._arranged[number].arrangement, self._recompute.first
        if first is None or tick.since is None:
            return await slice_of(arrangement, codes, tick)
        # As many more as go: then the first of any later version are among these, and what comes.
        gone = -int(np.minimum(changes[DIFF].to_numpy(), 0).sum())
        return await arrangement.first(first.count + gone, tick.since)

    def _at_version(self, now: pa.Table, once: bool, version: int) -> pa.Table:
        check_counts(now)
        rows = updates.rows_of(now) if once else updates.expand(now)
        count = rows.num_rows
        lines = rows.append_column(VERSION_FIELD, pa.array(np.full(count, version)))
        if not self._recompute.marked:
            return lines
        nulls = [pa.nulls(1, field.type) for field in rows.schema]
        mark = pa.table([*nulls, pa.array([version])], schema=lines.schema)
        marks = pa.array(np.arange(count + 1) < count)
        return pa.concat_tables([lines, mark]).append_column("mark", marks)


def _sorting(node: Recompute, key: tuple[int, ...]) -> Sorting:
    first = node.first
    return ByKey(names_of(key)) if first is None else ByOrder(f"c{first.place}", first.descending, first.nulls_first)
