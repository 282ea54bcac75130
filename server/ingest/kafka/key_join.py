"""The join of a step's keys with the rows of its output."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from protocol.columnar.gather import rows_at
from server.ingest.keyed_rows import KeyedRows, Numbers
from server.runtime.threads import in_thread
from server.spark import Runner


class KeyJoin:
    """Finds the old rows of keys in `rows`. Spark compares the keys."""

    def __init__(self, rows: KeyedRows, engine: Runner) -> None:
        self.rows = rows
        self._engine = engine

    async def find(self, keys: pa.Table) -> tuple[pa.Table, Numbers]:
        """Returns the rows that have one of these keys, and for each of them the number of its key.

        `keys`: distinct as of `key_numbers`, with the columns of the key. Spark joins the keys; the other columns are
        taken from the rows afterwards.
        """
        names = self.rows.key
        keys = keys.rename_columns(list(names))
        rows = await self.rows.find(keys)
        if rows.num_rows == 0:
            return rows, np.empty(0, np.int64)
        same = " AND ".join(f"o.c{i} <=> n.c{i}" for i in range(len(names)))
        at = f"c{len(names)}"
        tables = {"d0": _numbered(rows.select(names)), "d1": _numbered(keys)}
        found = await self._engine.run(
            f"SELECT o.{at} AS c0, n.{at} AS c1 FROM d0 o JOIN d1 n ON {same}", tables, patient=True
        )
        places, numbers = found.column(0).to_numpy(), found.column(1).to_numpy()
        return await in_thread(rows_at, rows, places), numbers


def _numbered(table: pa.Table) -> pa.Table:
    """The columns as c0, c1, ... and the number of each row."""
    numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
    names = [f"c{i}" for i in range(table.num_columns + 1)]
    return pa.table([*table.columns, numbers], names=names)


def key_numbers(keys: pa.Table) -> Numbers:
    """A number for each key, the same for equal keys. Keys are equal as in GROUP BY: NULL = NULL, 0.0 = -0.0."""
    columns = [pc.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c for c in keys.columns]
    return updates.row_numbers(pa.table(columns, names=keys.column_names))
