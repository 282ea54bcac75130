"""The join of a step's keys with the rows of its output."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from protocol.columnar.gather import rows_at
from server.ingest.keyed_rows import KeyedRows, Numbers
from server.runtime.threads import in_thread


class KeyJoin:
    """Finds the old rows of keys in `rows`."""

    def __init__(self, rows: KeyedRows) -> None:
        self.rows = rows

    async def find(self, keys: pa.Table) -> tuple[pa.Table, Numbers]:
        """Returns the rows that have one of these keys, and for each of them the number of its key.

        `keys`: distinct as of `key_numbers`, with the columns of the key.
        """
        keys = keys.rename_columns(list(self.rows.key))
        rows = await self.rows.find(keys)
        if rows.num_rows == 0:
            return rows, np.empty(0, np.int64)
        return await in_thread(_joined, rows, keys)


def _joined(rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, Numbers]:
    """The `rows` whose key is in `keys`, and the number of each one's key."""
    both = key_numbers(pa.concat_tables([keys, rows.select(keys.column_names)]))
    own, sought = both[: keys.num_rows], both[keys.num_rows :]
    order = np.argsort(own)
    places = np.searchsorted(own, sought, sorter=order)
    numbers = order[np.minimum(places, len(order) - 1)]
    is_found = own[numbers] == sought
    if is_found.all():
        return rows, numbers
    return rows_at(rows, np.flatnonzero(is_found)), numbers[is_found]


def key_numbers(keys: pa.Table) -> Numbers:
    """A number for each key, the same for equal keys. Keys are equal as in GROUP BY: NULL = NULL, 0.0 = -0.0."""
    columns = [pc.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c for c in keys.columns]
    return updates.row_numbers(pa.table(columns, names=keys.column_names))
