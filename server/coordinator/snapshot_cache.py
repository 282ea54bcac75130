"""A cache of the rows of collections at their latest read times.

Reading a collection from the log costs its size. Advancing cached rows costs the size of the changes since. While
nothing changes, the same Arrow table object is returned, so that the engine sends it to Spark only once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from catalog import spill, updates
from catalog.log import Compacted, Log
from catalog.objects import Collection, ObjectId, View
from protocol.pgwire.types import parse_type

CACHED_BYTES_MAX = 1024 * 1024 * 1024  # of cached rows; mapped files count, although they are in the page cache


def collection_schema(collection: Collection | View) -> pa.Schema:
    """Returns the Arrow schema of the rows of a collection or view: c0, c1, ..."""
    return updates.rows_schema([parse_type(column.type).arrow for column in collection.columns])


class SnapshotCache:
    """Rows of collections, read from the log. Caches the rows at the greatest requested time of each collection."""

    def __init__(self, log: Log, scratch: Path | None = None) -> None:
        """`scratch`: the directory for rows that are too large for memory, as in `Log`."""
        self._scratch = scratch
        self._log = log
        self._cached: OrderedDict[ObjectId, tuple[int, pa.Table]] = OrderedDict()

    async def rows(self, collection: Collection, as_of: int) -> pa.Table:
        """Returns the rows at `as_of`, which must be readable now. Cancel safety: nothing is changed."""
        cached = self._cached.get(collection.id)
        if cached is not None and cached[0] <= as_of:
            time, rows = cached
            if self._log.times(collection.id, time + 1, as_of + 1):
                rows = await asyncio.to_thread(self._advance, collection, rows, time, as_of)
        else:
            rows = await asyncio.to_thread(self._read, collection, as_of)
        self._cache(collection.id, as_of, rows)
        return rows

    def _read(self, collection: Collection, as_of: int) -> pa.Table:
        return self._log.rows(collection.id, as_of, collection_schema(collection))

    def _advance(self, collection: Collection, rows: pa.Table, time: int, as_of: int) -> pa.Table:
        try:
            changes = self._log.changes(collection.id, time + 1, as_of + 1, collection_schema(collection))
        except Compacted:  # these changes were merged with earlier ones
            return self._read(collection, as_of)
        if rows.nbytes > spill.MEMORY_BYTES_MAX and updates.takes_away(changes):
            return spill.applied(rows, changes, self._scratch)
        return updates.apply(rows, changes)

    def _cache(self, id: ObjectId, as_of: int, rows: pa.Table) -> None:
        cached = self._cached.get(id)
        if cached is None or cached[0] < as_of:
            self._cached[id] = (as_of, rows)
        self._cached.move_to_end(id)
        while len(self._cached) > 1 and sum(rows.nbytes for _, rows in self._cached.values()) > CACHED_BYTES_MAX:
            self._cached.popitem(last=False)

    def forget(self, id: ObjectId) -> None:
        self._cached.pop(id, None)
