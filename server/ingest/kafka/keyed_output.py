"""The rows of an output by key: an arrangement of the collection, from which a step reads the old rows of its keys.

The arrangement is that of all operators that look up rows by the same columns. It is filled from the log, and nothing
else is stored, so that after a restart it has exactly the committed rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.hashing import key_codes
from catalog.objects import ObjectId, Timestamp
from server.coordinator.coordinator import Coordinator
from server.dataflow.arrangements.run import ByKey
from server.runtime.threads import in_thread
from server.spark import Runner

Numbers = NDArray[np.int64]


class KeyedOutput:
    """The old rows of keys. Only the caller changes the collection, so its state is that of the last commit."""

    def __init__(
        self, id: ObjectId, schema: pa.Schema, key: tuple[int, ...], coordinator: Coordinator, engine: Runner
    ) -> None:
        """`key`: the positions of the columns that are unique in the collection."""
        self._id = id
        self._schema = schema
        self._key = tuple(f"c{position}" for position in key)
        self._coordinator = coordinator
        self._engine = engine
        time = self._time()
        self._holder = coordinator.frontiers.take_over((id,), time)
        positions = tuple(range(len(schema)))
        self._lease = coordinator.arrangements.shared.lease((id, positions, ByKey(self._key)), schema, time)

    def _time(self) -> Timestamp:
        return Timestamp(self._coordinator.frontiers.upper(self._id) - 1)

    async def find(self, keys: pa.Table) -> tuple[pa.Table, Numbers]:
        """Returns the rows that have one of these keys, and for each of them the number of its key.

        `keys`: distinct, with the columns of the key. NULL equals NULL. Spark joins the keys; the other columns are
        taken from the arrangement's rows afterwards.
        """
        time = self._time()
        await self._lease.reach(self._coordinator.inputs, time)
        self._lease.advance(time)
        self._holder.advance(time)
        keys = keys.rename_columns(list(self._key))
        hashes = await in_thread(_distinct_codes, keys, self._key)
        changes = await self._lease.arrangement.probe(hashes, time)
        rows = updates.expand(changes)
        if rows.num_rows == 0:
            return rows, np.empty(0, np.int64)
        old = _numbered(rows.select(self._key))
        new = _numbered(keys)
        same = " AND ".join(f"o.c{i} <=> n.c{i}" for i in range(len(self._key)))
        at = f"c{len(self._key)}"
        found = await self._engine.run(
            f"SELECT o.{at} AS c0, n.{at} AS c1 FROM d0 o JOIN d1 n ON {same}", {"d0": old, "d1": new}, patient=True
        )
        return rows.take(found.column(0)), found.column(1).to_numpy()

    def close(self) -> None:
        """Releases the arrangement. May be called twice."""
        self._lease.release()
        self._holder.release()


def _distinct_codes(keys: pa.Table, names: tuple[str, ...]) -> NDArray[np.uint32]:
    return np.unique(key_codes(keys, names))


def _numbered(table: pa.Table) -> pa.Table:
    """The columns as c0, c1, ... and the number of each row."""
    numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
    names = [f"c{i}" for i in range(table.num_columns + 1)]
    return pa.table([*table.columns, numbers], names=names)


def groups_of(keys: pa.Table) -> Numbers:
    """A number for each row, which is equal for equal keys. NULL equals NULL."""
    numbers = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        codes = updates.comparable(column.combine_chunks()).dictionary_encode(null_encoding="encode").indices
        own = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = np.unique(numbers * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return numbers


def last_of_each(groups: Numbers) -> NDArray[np.intp]:
    """The last row of each group, in the order of the rows."""
    reversed_groups = groups[::-1]
    first = np.unique(reversed_groups, return_index=True)[1]
    return np.sort(len(groups) - 1 - first)
