"""A cache of the rows of collections at their latest read times.

Reading a collection from the log costs its size. Advancing cached rows costs the size of the changes since. While
nothing changes, the same Arrow table object is returned, so that the engine sends it to Spark only once.

Rows with given keys are selected from an older snapshot and from the changes since, so that neither a commit nor a read
of few rows costs the size of the collection.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from catalog import spill, updates
from catalog.ids import ObjectId
from catalog.layout import Altered, Layout, Numbering, check_unaltered
from catalog.log import Compacted, Log
from catalog.objects.catalog_object import Item
from catalog.objects.relations import Collection
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.types import parse_type
from server.coordinator.recent_changes import ROWS_MAX, RecentChanges
from server.coordinator.sorted_keys import SortedKeys
from server.runtime.threads import THREAD_ROWS, in_thread
from server.sql.key_conditions import Wanted, at_positions, selected

CACHED_BYTES_MAX = 1024 * 1024 * 1024  # of cached rows; mapped files count, although they are in the page cache
LOOP_POSITIONS_MAX = 256  # more rows are copied in a thread
LOOP_COMMITS_MAX = 256  # more commits are read from the log in a thread
SMALL_ROWS, OUTDATED_ROWS = 256, 16  # snapshots of at most 256 rows advance with every 16 changes
CACHES = ((32, 4_096), (256, 512), (1_664, 64))
"""How many schemas, and layouts, of tables of up to so many columns are cached."""
SORTED_READS = 2  # after this number of reads by a column, its keys are sorted


Others = ParamSpec("Others")
Made = TypeVar("Made")


def cached_by_width(
    make: Callable[Concatenate[tuple[str, ...], Others], Made],
) -> Callable[Concatenate[tuple[str, ...], Others], Made]:
    """Caches the results for tuples of types. Fewer results are kept for longer tuples: a type takes up to 700 bytes.

    ALTER TABLE makes new schemas with each action, of up to 1,600 columns.
    """
    caches = [(width, lru_cache(entries)(make)) for width, entries in CACHES]

    def cached(types: tuple[str, ...], /, *others: Others.args, **named: Others.kwargs) -> Made:
        for width, cache in caches:
            if len(types) <= width:
                return cache(types, *others, **named)  # type: ignore[arg-type]
        return make(types, *others, **named)

    return cached


def collection_schema(collection: Collection | View) -> pa.Schema:
    """Returns the Arrow schema of the rows of a collection or view: c0, c1, ..."""
    return _schema(tuple(column.type for column in collection.columns))


@cached_by_width
def _schema(types: tuple[str, ...]) -> pa.Schema:
    return updates.rows_schema([parse_type(type).arrow for type in types])


def layout_of(item: Item | None) -> Layout | None:
    """How the columns of a table are stored; None for one that was never altered, and for other items."""
    if not isinstance(item, Table) or item.numbering is None:
        return None
    return _layout(tuple(column.type for column in item.columns), item.numbering)


@cached_by_width
def _layout(types: tuple[str, ...], numbering: Numbering) -> Layout:
    return Layout(_schema(types), numbering)


def log_tables(log: Log, collection: Collection, lower: int, upper: int) -> list[pa.Table]:
    """As `Log.tables`, with the columns of this definition of the collection. Altered if one was dropped since."""
    layout = layout_of(collection)
    tables = log.tables(collection.id, lower, upper, layout)
    if layout is None:
        check_unaltered(tables, collection_schema(collection))
    return tables


class _Snapshot:
    """The rows of a collection at a time, and the later changes that are known. `layout`: that of the rows.

    `earlier`: the previous snapshot of a small collection, for transactions that read at an earlier time.
    """

    __slots__ = ("_reads", "earlier", "keys", "layout", "nbytes", "recent", "rows", "time")

    def __init__(self, time: int, rows: pa.Table, before: _Snapshot | None, layout: Layout | None) -> None:
        """`before`: an earlier snapshot. The columns that it has sorted are sorted again when they are read."""
        self.time = time
        self.layout = layout
        self.rows = rows
        self.nbytes = rows.nbytes
        self.recent: RecentChanges = RecentChanges(time) if before is None else before.recent.after(time)
        self.keys: dict[int, SortedKeys] = {}
        self.earlier: _Snapshot | None = None
        self._reads = Counter(dict.fromkeys(() if before is None else before.keys, SORTED_READS - 1))

    @property
    def is_outdated(self) -> bool:
        """Whether applying the changes to the rows costs less than searching them in some further reads."""
        return OUTDATED_ROWS < self.recent.rows <= SMALL_ROWS and self.rows.num_rows <= SMALL_ROWS

    def unchanged_until(self, time: int) -> None:
        """Moves the snapshot to a later time at which the rows are the same."""
        self.time = time
        self.recent.skip(time)

    def is_to_be_sorted(self, column: int) -> bool:
        """Counts a read by a column. Returns whether the caller should sort its keys, which only one caller does."""
        self._reads[column] += 1
        return self._reads[column] == SORTED_READS

    def sort(self, column: int) -> None:
        self.keys[column] = keys = SortedKeys(self.rows.column(column))
        self.nbytes += keys.nbytes


class SnapshotCache:
    """Rows of collections, read from the log. Caches the rows at the greatest requested time of each collection."""

    def __init__(self, log: Log, scratch: Path | None = None) -> None:
        """`scratch`: the directory for rows that are too large for memory, as in `Log`."""
        self._scratch = scratch
        self._log = log
        self._cached: OrderedDict[ObjectId, _Snapshot] = OrderedDict()
        self._advancing: set[ObjectId] = set()

    async def rows(self, collection: Collection, as_of: int) -> pa.Table:
        """Returns the rows at `as_of`, which must be readable now. Cancel safety: nothing is changed."""
        cached, layout = self._cached.get(collection.id), layout_of(collection)
        if cached is not None and cached.time <= as_of and cached.layout is layout:
            rows = cached.rows
            if self._log.times(collection.id, cached.time + 1, as_of + 1):
                known = self._changes(collection, cached, as_of)
                rows = await asyncio.to_thread(self._advanced, collection, cached, as_of, known)
        else:
            rows = await asyncio.to_thread(self._read, collection, as_of)
        self._cache(collection.id, as_of, rows, layout)
        return rows

    async def selected(self, collection: Collection, as_of: int, wanted: Wanted) -> pa.Table:
        """Returns the wanted rows at `as_of`, which must be readable now. Cancel safety: nothing is changed."""
        id = collection.id
        snapshot = self._cached.get(id)
        if snapshot is not None and as_of < snapshot.time and snapshot.earlier is not None:
            snapshot = snapshot.earlier
        if snapshot is not None and snapshot.layout is not layout_of(collection):
            snapshot = None
        changes = None if snapshot is None else self._changes(collection, snapshot, as_of)
        if snapshot is None or changes is None:
            return await in_thread(selected, await self.rows(collection, as_of), wanted)
        self._cached.move_to_end(id)
        if snapshot.is_outdated and changes:
            return selected(self._advance_few(collection, snapshot, as_of, changes), wanted)
        if snapshot.recent.is_large and id not in self._advancing:
            self._advancing.add(id)
            try:
                return await in_thread(selected, await self.rows(collection, as_of), wanted)
            finally:
                self._advancing.discard(id)
        rows = await self._selected(snapshot, wanted)
        if not changes:
            return rows
        later = selected(pa.concat_tables(changes), wanted)
        if later.num_rows == 0:
            return rows
        if rows.num_rows > LOOP_POSITIONS_MAX:
            return await in_thread(updates.apply, rows, later)
        return updates.expand(updates.consolidate(pa.concat_tables([updates.with_diff(rows, 1), later])))

    def _advance_few(
        self, collection: Collection, snapshot: _Snapshot, as_of: int, changes: Sequence[pa.Table]
    ) -> pa.Table:
        """The rows at `as_of` of a small collection, which become its snapshot."""
        rows = updates.apply(snapshot.rows, updates.consolidate(pa.concat_tables(changes)))
        self._cache(collection.id, as_of, rows, snapshot.layout)
        if (cached := self._cached[collection.id]).time == as_of and cached is not snapshot:
            cached.earlier, snapshot.earlier = snapshot, None
        return rows

    def _changes(self, collection: Collection, snapshot: _Snapshot, as_of: int) -> list[pa.Table] | None:
        """The changes since the snapshot, not consolidated; None if they are unknown or too many."""
        id, recent = collection.id, snapshot.recent
        if recent.until < as_of:
            lower, upper = recent.until + 1, as_of + 1
            commits = len(self._log.times(id, lower, upper))
            if commits > LOOP_COMMITS_MAX or self._log.row_count(id, lower, upper) > ROWS_MAX:
                return None
            try:
                tables = log_tables(self._log, collection, lower, upper) if commits else []
            except (Altered, Compacted):
                return None
            recent.extend(as_of, [updates.as_changes(table) for table in tables])
        return recent.between(snapshot.time, as_of)

    async def _selected(self, snapshot: _Snapshot, wanted: Wanted) -> pa.Table:
        """The wanted rows of a snapshot. Large ones are searched by sorted keys, or in a thread."""
        rows = snapshot.rows
        if rows.num_rows <= THREAD_ROWS:
            return selected(rows, wanted)
        column, values = wanted[0]
        if snapshot.is_to_be_sorted(column):
            await asyncio.to_thread(snapshot.sort, column)
        if (keys := snapshot.keys.get(column)) is None:
            return await asyncio.to_thread(selected, rows, wanted)
        positions = keys.positions(values)
        if len(positions) > LOOP_POSITIONS_MAX:
            return await asyncio.to_thread(lambda: selected(at_positions(rows, positions), wanted))
        found = at_positions(rows, positions)
        return selected(found, wanted[1:] if keys.is_exact else wanted)

    def _read(self, collection: Collection, as_of: int) -> pa.Table:
        return self._log.rows(collection.id, as_of, collection_schema(collection), layout_of(collection))

    def _advanced(
        self, collection: Collection, snapshot: _Snapshot, as_of: int, known: Sequence[pa.Table] | None
    ) -> pa.Table:
        """The rows at `as_of`, a later time than the snapshot's. `known`: the changes in between, if they are known."""
        rows, schema = snapshot.rows, collection_schema(collection)
        try:
            if known:
                changes = updates.consolidate(pa.concat_tables(known))
            else:
                changes = self._log.changes(collection.id, snapshot.time + 1, as_of + 1, schema, snapshot.layout)
        except Compacted:  # these changes were merged with earlier ones
            return self._read(collection, as_of)
        if rows.nbytes > spill.MEMORY_BYTES_MAX and updates.has_retractions(changes):
            return spill.applied(rows, changes, self._scratch)
        return updates.apply(rows, changes)

    def _cache(self, id: ObjectId, as_of: int, rows: pa.Table, layout: Layout | None) -> None:
        cached = self._cached.get(id)
        is_altered = cached is not None and cached.layout is not layout
        if cached is None or cached.time < as_of or is_altered:
            if cached is not None and cached.rows is rows:
                cached.unchanged_until(as_of)
            else:
                self._cached[id] = _Snapshot(as_of, rows, None if is_altered else cached, layout)
        self._cached.move_to_end(id)
        while len(self._cached) > 1 and sum(known.nbytes for known in self._cached.values()) > CACHED_BYTES_MAX:
            self._cached.popitem(last=False)

    def forget(self, id: ObjectId) -> None:
        self._cached.pop(id, None)
