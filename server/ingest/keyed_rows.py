"""The rows of a collection that a source writes, found by key in an arrangement that indexes and operators share.

The arrangement is filled from the log, and nothing else is stored, so that after a restart it has exactly the committed
rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from protocol.columnar.hashing import Hashes, distinct_hashes, key_codes
from server.coordinator.coordinator import Coordinator
from server.dataflow.arrangements.run import ByKey
from server.runtime.threads import in_thread

Numbers = NDArray[np.int64]


class KeyedRows:
    """Only the source writes the collection. Around each of its commits it calls `keep` and then `committed`.

    `pending` changes are those of the commit in preparation; they are found, too.
    """

    def __init__(self, coordinator: Coordinator, id: ObjectId, schema: pa.Schema, key: tuple[int, ...]) -> None:
        """`key`: the positions of the columns by which rows are found."""
        self.key = tuple(schema.names[position] for position in key)
        self._coordinator = coordinator
        self._id = id
        time = coordinator.latest_time()
        self._holder = coordinator.frontiers.hold((id,), time)
        self._schema, self._sorting = schema, ByKey(self.key)
        shared = coordinator.arrangements.shared
        self._lease = shared.lease((id, tuple(range(len(schema.names))), self._sorting), schema, time)
        self._pending = shared.arranger.arrangement(self._sorting, schema)
        self.added = 0
        """How many tables were passed to `add` since the last `clear`."""

    def keep(self) -> None:
        """Keeps the history from now on, so that `committed` can insert the next commit into the arrangement."""
        self._holder.follow(None)

    async def committed(self) -> None:
        """Inserts what was committed, and releases the history."""
        time = await self._reach()
        self._lease.advance(time)
        self._holder.advance(time)
        self._holder.follow(frozenset((self._id,)))
        self.clear()

    async def add(self, changes: pa.Table) -> None:
        """Adds pending changes."""
        changes = updates.consolidate(updates.as_changes(changes))
        await self._pending.insert(changes, self._pending.upper)
        self.added += 1

    def clear(self) -> None:
        """Forgets the pending changes."""
        if self.added:
            self._pending.close()
            self._pending = self._coordinator.arrangements.arranger.arrangement(self._sorting, self._schema)
            self.added = 0

    async def find(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, and possibly others with equal hashes. `keys` has the columns of the key."""
        hashes = await in_thread(_distinct_hashes, keys, self.key)
        time = await self._reach()
        found = await self._lease.arrangement.probe(hashes, time)
        if self.added:
            pending = await self._pending.probe(hashes, self._pending.upper)
            found = updates.consolidate(pa.concat_tables([found, pending]))
        return await in_thread(updates.expand, found)

    async def _reach(self) -> Timestamp:
        """Brings the arrangement up to the latest time, and returns it."""
        time = self._coordinator.latest_time()
        await self._lease.reach(self._coordinator.inputs, time)
        return time

    def close(self) -> None:
        """Releases the arrangement. May be called twice."""
        self._lease.release()
        self._holder.release()
        self._pending.close()


def _distinct_hashes(keys: pa.Table, names: tuple[str, ...]) -> Hashes:
    return distinct_hashes(key_codes(keys, names))


def last_of_each(groups: Numbers) -> NDArray[np.intp]:
    """The last row of each group, in the order of the rows."""
    reversed_groups = groups[::-1]
    first = np.unique(reversed_groups, return_index=True)[1]
    return np.sort(len(groups) - 1 - first)
