"""The join of a step's keys with the rows of its output.

Spark compares the keys, because its equality is the one of every other join. It gets pairs of a row and of the only key
with the same hash, and filters them: a filter takes a third of the processor time of a join. Rows whose hash several
keys share are joined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from protocol.columnar.gather import rows_at
from protocol.columnar.hashing import key_codes
from server.ingest.keyed_rows import KeyedRows, Numbers
from server.runtime.threads import in_thread
from server.spark import Runner


class KeyJoin:
    """Finds the old rows of keys in `rows`."""

    def __init__(self, rows: KeyedRows, engine: Runner) -> None:
        self.rows = rows
        self._engine = engine

    async def find(self, keys: pa.Table) -> tuple[pa.Table, Numbers]:
        """Returns the rows that have one of these keys, and for each of them the number of its key.

        `keys`: distinct as of `key_numbers`, with the columns of the key. Spark gets the keys; the other columns are
        taken from the rows afterwards.
        """
        names = self.rows.key
        keys = keys.rename_columns(list(names))
        rows = await self.rows.find(keys)
        if rows.num_rows == 0:
            return rows, np.empty(0, np.int64)
        places, numbers, shared = await in_thread(_candidates, rows, keys, names)
        places, numbers = await self._filtered(rows, keys, places, numbers)
        if len(shared):
            joined = await self._joined(rows, keys, shared)
            places, numbers = (np.concatenate(both) for both in zip((places, numbers), joined, strict=True))
        return await in_thread(rows_at, rows, places), numbers

    async def _filtered(
        self, rows: pa.Table, keys: pa.Table, places: Numbers, numbers: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The pairs of the row and the key at these positions that are equal."""
        if not len(places):
            return places, numbers
        names = self.rows.key
        old = await in_thread(rows_at, rows.select(names), places)
        new = await in_thread(rows_at, keys.select(names), numbers)
        width = len(names)
        same = " AND ".join(f"c{i} <=> c{width + i}" for i in range(width))
        pairs = _numbered([*old.columns, *new.columns], np.arange(len(places)))
        sql = f"SELECT c{2 * width} AS c0 FROM d0 WHERE {same}"
        found = (await self._engine.run(sql, {"d0": pairs}, patient=True)).column(0).to_numpy()
        return places[found], numbers[found]

    async def _joined(self, rows: pa.Table, keys: pa.Table, places: Numbers) -> tuple[Numbers, Numbers]:
        """The pairs of a row at one of these positions and its key."""
        names = self.rows.key
        same = " AND ".join(f"o.c{i} <=> n.c{i}" for i in range(len(names)))
        at = f"c{len(names)}"
        old = await in_thread(rows_at, rows.select(names), places)
        tables = {
            "d0": _numbered(old.columns, places),
            "d1": _numbered(keys.select(names).columns, np.arange(len(keys))),
        }
        sql = f"SELECT o.{at} AS c0, n.{at} AS c1 FROM d0 o JOIN d1 n ON {same}"
        found = await self._engine.run(sql, tables, patient=True)
        return found.column(0).to_numpy(), found.column(1).to_numpy()


def _candidates(rows: pa.Table, keys: pa.Table, names: Sequence[str]) -> tuple[Numbers, Numbers, Numbers]:
    """The positions of rows with the hash of one key, the number of this key, and the positions of the other rows whose
    hash is that of several keys."""
    of_keys, of_rows = key_codes(keys, names), key_codes(rows, names)
    order = np.argsort(of_keys)
    ordered = of_keys[order]
    first = np.searchsorted(ordered, of_rows, "left")
    counts = np.searchsorted(ordered, of_rows, "right") - first
    places = np.flatnonzero(counts == 1)
    return places, order[first[places]], np.flatnonzero(counts > 1)


def _numbered(columns: Sequence[pa.ChunkedArray], numbers: Numbers) -> pa.Table:
    """The columns as c0, c1, ... and then `numbers`."""
    return pa.table([*columns, pa.array(numbers)], names=[f"c{i}" for i in range(len(columns) + 1)])


def key_numbers(keys: pa.Table) -> Numbers:
    """Returns a number for each key, the same for equal keys. As in GROUP BY, NULL = NULL and 0.0 = -0.0."""
    columns = [pc.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c for c in keys.columns]
    return updates.row_numbers(pa.table(columns, names=keys.column_names))
