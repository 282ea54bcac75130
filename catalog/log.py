"""The log: the batches of every collection, and reads of them.

A batch holds updates of one collection: those of one commit at the commit's time, or those of several times, sorted by
time (`Spans`). Its payload is `rows` if all updates are insertions, otherwise `changes` (see `updates`). A small
payload is in the batch's SQLite row, a large one in a file of `Payloads`.

Crash safety depends on this order: a file is complete and synced before the transaction that names it; a file is
unlinked only after the transaction that drops its batch; files that no row names are removed at start.

There are two kinds of compaction. `merge_runs` chooses the batches that either merges.

- Times t <= `since`: no reader can distinguish the times of updates. The server computes `since` from holds and
  retention. Batches whose times are all <= `since` merge into one at the greatest of their times (`mergeable`,
  `merge`). The merged batch is consolidated and cannot answer reads at earlier times. `since` becomes durable before or
  with the merge, so that a restarted server never offers a compacted time.
- Times t > `since`: the history is held. Batches merge into one that keeps the time of each update
  (`mergeable_history`, `merge_history`). A batch with times on both sides of `since` is not rewritten until all its
  times are <= `since`. There is at most one such batch, and when it was written it was no larger than the held history.
  The log therefore stores at most twice the held history.

Every payload has a checksum, which is verified when the payload is first read after a start. The other columns of a
batch's row have a checksum, which is verified at start. If a checksum does not match, reads of its collection fail with
`Damaged`; other collections are not affected.

Thread safety: all functions may be called from any thread. The batch index is immutable; writers replace it.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalog import merging, spill
from catalog import updates as u
from catalog.batches import (
    INSERT,
    STORED,
    Batch,
    Payload,
    batch_of,
    decoded,
    inserted_batch,
    stored_values,
    verify,
    with_names,
)
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Layout, check_unaltered
from catalog.merge_runs import SPANS_MAX, newest_run
from catalog.payloads import Payloads, parsed
from catalog.shared_list import SharedList
from catalog.spans import Spans
from catalog.store import Store, StoreError, Undecided
from catalog.table_cache import TableCache

INLINE_BYTES = 64 * 1024  # smaller payloads are cheaper in SQLite than the two syncs of a file
COPIED_BYTES = 8 * 1024 * 1024  # copied at a time while a payload file is written
BATCH_ROWS = 64 * 1024  # in a record batch of a payload file


# Passed explicitly because Arrow's default is read from the environment each time.
_READ_OPTIONS = pa.ipc.IpcReadOptions()
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class Frontiers:
    """The durable frontiers. Reads need `as_of >= since`; `upper` is set for materialized views only."""

    since: Timestamp
    upper: Timestamp | None


@dataclass(frozen=True, slots=True)
class LogSizes:
    """The times of a collection's batches, ascending, with the cumulative rows and bytes up to each time."""

    times: list[Timestamp]
    rows: list[int]
    bytes: list[int]

    def between(self, lower: int, upper: int) -> tuple[int, int]:
        """Rows and bytes at times in (lower, upper]."""
        first, last = bisect_right(self.times, lower), bisect_right(self.times, upper)
        if first >= last:
            return 0, 0
        before = (self.rows[first - 1], self.bytes[first - 1]) if first else (0, 0)
        return self.rows[last - 1] - before[0], self.bytes[last - 1] - before[1]


class Compacted(Exception):
    """The requested time has been compacted."""


class Dropped(Exception):
    """The collection to be read or written has been dropped."""


class Damaged(Exception):
    """A batch is corrupt or unreadable. The message names the collection and the batch, `detail` the cause."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class Log:
    """The batches of all collections. Opening it reads the index and removes files that no batch names."""

    def __init__(
        self,
        store: Store,
        payloads: Payloads,
        scratch: Path | None = None,
        name_of: Callable[[ObjectId], str] = str,
        layout_of: Callable[[ObjectId], Layout | None] = lambda _: None,
    ) -> None:
        """`scratch`: a local directory for data too large for memory; None is the system's temporary directory.

        `name_of`: the name of a collection in messages. `layout_of`: the current layout of an altered table.
        """
        self._layout_of = layout_of
        self._scratch = scratch
        self._name_of = name_of
        self._store = store
        self._payloads = payloads
        self._lock = threading.Lock()
        self._cache = TableCache()
        self._verified: set[int] = set()  # batches whose payload checksum has been verified
        self._damaged: dict[ObjectId, int] = {}  # collections with a damaged batch row, and that batch's id
        self._batches: dict[ObjectId, SharedList[Batch]] = {}
        self._leaving: dict[int, pa.Table] = {}  # inline payloads of batches that a merge in progress replaces
        self._unused: list[str] = []  # files that no batch names any more
        self._merged_to: dict[ObjectId, Timestamp] = {}  # time of the latest merge; `changes` need `lower` > it
        self.durable: dict[ObjectId, Frontiers] = {}
        for id, since, upper in store.read("SELECT id, since, upper FROM collections"):
            self.durable[id] = Frontiers(since, upper)
        batches = [
            self._stored(row) for row in store.read(f"SELECT {STORED} FROM batches ORDER BY collection, time, id")
        ]
        for collection, own in itertools.groupby(batches, key=lambda batch: batch.collection):
            self._batches[collection] = SharedList(own)
        named = {batch.file for batch in batches}
        if not self._damaged:  # the file name in a damaged row may be wrong: a used file would be removed
            for orphan in payloads.names() - named:
                payloads.remove(orphan)

    def _stored(self, row: tuple[Any, ...]) -> Batch:
        """The batch that a row describes. If the row's checksum is wrong, reads of the collection raise `Damaged`."""
        batch = batch_of(*row)
        if batch is not None:
            return batch
        id, collection, _, _, _, file, *_ = row
        self._damaged[collection] = id
        return Batch(id, collection, Timestamp(0), 0, 0, file if isinstance(file, str) else None)

    # -- writing ------------------------------------------------------------------------------------------------

    def prepare(self, table: pa.Table, layout: Layout | None = None) -> Payload:
        """Stores `table` (rows or changes) as a payload. Blocks while a large one is written and synced.

        `layout`: that of an altered table.
        """
        # `nbytes` takes 10 microseconds and is at most the size of the buffers, unless columns share some.
        if table.get_total_buffer_size() > INLINE_BYTES and table.nbytes > INLINE_BYTES:
            return self.prepare_stream(table.schema, _record_batches(table), layout)
        table = table.combine_chunks()
        inline = _stream(table if layout is None else with_names(table, layout.stored(table.schema)))
        if table.get_total_buffer_size() > 2 * len(inline):  # a slice, which keeps its parent in memory
            table = with_names(pa.ipc.open_stream(inline, options=_READ_OPTIONS).read_all(), table.schema)
        return Payload(table, inline, None, len(inline), zlib.crc32(inline), None, layout)

    def prepare_stream(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], layout: Layout | None = None
    ) -> Payload:
        """Writes a payload file batch by batch; the data may be larger than memory. `layout`: as in `prepare`."""
        if layout is not None:
            stored = layout.stored(schema)
            batches = (pa.RecordBatch.from_arrays(batch.columns, schema=stored) for batch in batches)
            file = self._payloads.write(stored, batches)
        else:
            file = self._payloads.write(schema, batches)
        content = self._payloads.read(file)
        table = with_names(parsed(content), schema)
        return Payload(table, None, file, table.nbytes, zlib.crc32(content), None, layout)

    def discard(self, payload: Payload) -> None:
        """Removes a payload whose transaction was not committed."""
        if payload.file is not None:
            self._payloads.remove(payload.file)

    @contextmanager
    def discarding(self, payloads: Iterable[Payload]) -> Iterator[None]:
        """Discards the payloads if their transaction, in the body, fails.

        After Undecided they are kept: the transaction may have committed. If it has not, the next start removes them.
        """
        try:
            yield
        except Undecided:
            raise
        except Exception:
            for payload in payloads:
                self.discard(payload)
            raise

    def insert(self, tx: sqlite3.Connection, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch:
        """Inserts a batch for a payload, within a transaction. Call `committed` after the commit.

        Dropped if the collection no longer exists.
        """
        cursor = tx.execute(INSERT, stored_values(collection, time, payload))
        if cursor.rowcount == 0:
            raise Dropped(collection)
        assert cursor.lastrowid is not None
        return inserted_batch(cursor.lastrowid, collection, time, payload)

    async def insert_alone(self, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch | None:
        """As `insert`, in a transaction of its own. None if nothing was inserted: `insert` reports why."""
        id = await self._store.insert_alone(INSERT, stored_values(collection, time, payload))
        return None if id is None else inserted_batch(id, collection, time, payload)

    def committed(self, written: Iterable[tuple[Batch, Payload]]) -> None:
        """Makes batches visible to readers, after the commit of the transaction that inserted them."""
        with self._lock:
            for batch, payload in written:
                self._batches[batch.collection] = self.batches(batch.collection).appended(batch)
                self._written(batch, payload.stored_table)

    def create(self, tx: sqlite3.Connection, collection: ObjectId, frontiers: Frontiers) -> None:
        """Creates a collection, within a transaction."""
        tx.execute("INSERT INTO collections VALUES (?, ?, ?)", (collection, frontiers.since, frontiers.upper))

    def advance_upper(self, tx: sqlite3.Connection, collection: ObjectId, upper: Timestamp) -> None:
        """Stores a materialized view's `upper`, in the transaction that writes its updates at times < `upper`."""
        tx.execute("UPDATE collections SET upper = ? WHERE id = ?", (upper, collection))

    def begin_history(self, tx: sqlite3.Connection, collection: ObjectId, since: Timestamp) -> None:
        """Stores that a collection cannot be read before `since`, within a transaction."""
        tx.execute("UPDATE collections SET since = max(since, ?) WHERE id = ?", (since, collection))

    def drop(self, tx: sqlite3.Connection, collection: ObjectId) -> None:
        """Deletes a collection, within a transaction. Call `dropped` after the commit."""
        tx.execute("DELETE FROM batches WHERE collection = ?", (collection,))
        tx.execute("DELETE FROM collections WHERE id = ?", (collection,))

    def dropped(self, collection: ObjectId) -> None:
        """Removes a collection from the index, after the commit of the transaction that deleted it.

        `remove_unused` removes its files.
        """
        with self._lock:
            self._merged_to.pop(collection, None)
            self._damaged.pop(collection, None)
            self._forget(self._batches.pop(collection, ()))

    # -- reading ------------------------------------------------------------------------------------------------

    def batches(self, collection: ObjectId) -> SharedList[Batch]:
        """The collection's batches, ordered by time."""
        found = self._batches.get(collection)
        return SharedList() if found is None else found

    def _between(self, collection: ObjectId, lower: int, upper: int) -> tuple[Batch, ...]:
        """The batches that may have times in [lower, upper); takes O(log n)."""
        batches = self.batches(collection)
        return batches[batches.bisect_left(lower, key=_time) : batches.bisect_left(upper, key=_first_time)]

    def times(self, collection: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which there are updates, ascending.

        Use it for times > `since`; a compacted batch has only the greatest of the times of its commits.
        """
        batches = self._between(collection, lower, upper)
        return list(dict.fromkeys(time for batch in batches for time in batch.times(lower, upper)))

    def next_time(self, collection: ObjectId, lower: int) -> Timestamp | None:
        """The least of the times >= `lower` that `times` returns; None if there is none."""
        batches = self.batches(collection)
        at = batches.bisect_left(lower, key=_time)
        return batches[at].times(lower, batches[at].time + 1)[0] if at < len(batches) else None

    def row_count(self, collection: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """The number of log rows at times in [lower, upper), or >= `lower`. Reads no payload."""
        if upper is None:
            batches = self.batches(collection)
            upper = batches[-1].time + 1 if batches else 0
        ranges = (batch.range(lower, upper) for batch in self._between(collection, lower, upper))
        return sum(end - start for start, end in ranges)

    def are_cached(self, collection: ObjectId, lower: int, upper: int) -> bool:
        """Whether the updates at times in [lower, upper) were in memory just now, so that reading them needs no IO."""
        return all(self._cache.has_inline(batch) for batch in self._between(collection, lower, upper))

    def rows(self, collection: ObjectId, as_of: int, schema: pa.Schema, layout: Layout | None = None) -> pa.Table:
        """The collection's rows at `as_of`, where `since <= as_of < upper`; a row occurs as often as its multiplicity.

        A large result is a memory-mapped file. Compacted if `as_of` < the time of the latest `merge` since start.
        `layout`: that of the rows, if the caller's table was altered. Altered if a column was dropped since.
        """
        tables = self._shaped(self._load(collection, 0, as_of + 1), schema, layout)
        if all(u.DIFF not in table.column_names for table in tables):
            return pa.concat_tables([schema.empty_table(), *tables])
        tables = [schema.empty_table(), *tables]
        if spill.size_of(tables) <= spill.MEMORY_BYTES_MAX:
            return spill.rows(tables, self._scratch)
        return spill.collected(merging.rows(tables, self._scratch), self._scratch)

    def changes(
        self, collection: ObjectId, lower: int, upper: int, schema: pa.Schema, layout: Layout | None = None
    ) -> pa.Table:
        """The collection's updates at times in [lower, upper), consolidated as if they had one time.

        Compacted if `lower` <= the time of the latest `merge` since start; a hold on `lower - 1` prevents this.
        `layout`: as in `rows`.
        """
        tables = [u.as_changes(table) for table in self._shaped(self._load(collection, lower, upper), schema, layout)]
        return u.consolidate(pa.concat_tables([u.with_diff(schema.empty_table(), 1), *tables]))

    def tables(self, collection: ObjectId, lower: int, upper: int, layout: Layout | None = None) -> list[pa.Table]:
        """The tables (rows or changes) with times in [lower, upper); `lower` = 0 includes compacted ones.

        Large tables are mapped files, which stay readable as long as the table exists. Compacted as in `changes`.
        `layout`: as in `rows`.
        """
        tables = self._load(collection, lower, upper)
        return tables if layout is None else [layout.read(table) for table in tables]

    def current_tables(self, collection: ObjectId, lower: int, upper: int) -> list[pa.Table]:
        """As `tables`, with the columns that the collection has now."""
        return self.tables(collection, lower, upper, self._layout_of(collection))

    @staticmethod
    def _shaped(tables: list[pa.Table], schema: pa.Schema, layout: Layout | None) -> list[pa.Table]:
        if layout is not None:
            return [layout.read(table) for table in tables]
        check_unaltered(tables, schema)
        return tables

    def _load(self, collection: ObjectId, lower: int, upper: int) -> list[pa.Table]:
        # The lock keeps compaction from dropping a batch between the index lookup and its opening.
        with self._lock:
            self._check_rows(collection)
            # Changes start from the state at lower - 1; rows (lower = 0) are the state at upper - 1.
            first = lower or upper
            if first <= self._merged_to.get(collection, -1):
                raise Compacted(f"{collection} has no history at {first - 1}")
            opened = [(batch, self._open(batch)) for batch in self._between(collection, lower, upper)]
        return [batch.part(self._table(batch, source), lower, upper) for batch, source in opened]

    def _check_rows(self, collection: ObjectId) -> None:
        if (id := self._damaged.get(collection)) is not None:
            raise self._damage(id, collection, "The checksum of the batch's row in the catalog is wrong.")

    def _open(self, batch: Batch) -> pa.Table | pa.Buffer:
        """The batch's table if it is cached, else its stored payload, a buffer that outlives the file."""
        if (cached := self._cache.inline(batch)) is not None:
            return cached
        if batch.id in self._leaving:
            return self._leaving[batch.id]
        try:
            if batch.file is not None:
                table, size = self._cache.mapped(batch) or (None, 0)
                if table is not None and self._payloads.size(batch.file) == size:
                    return table
                if table is not None:  # the file was truncated: access to its missing pages would crash
                    self._cache.remove(batch)
                    self._verified.discard(batch.id)
                return self._payloads.read(batch.file)
            found = self._store.read("SELECT payload FROM batches WHERE id = ?", (batch.id,))
        except (OSError, pa.ArrowException, StoreError) as error:
            raise self._damage(batch.id, batch.collection, f"It cannot be read: {error}.") from error
        if not found:
            raise Dropped(batch.collection)  # the drop is committed, but `dropped` has not been called yet
        return pa.py_buffer(found[0][0] or b"")

    def _table(self, batch: Batch, source: pa.Table | pa.Buffer) -> pa.Table:
        """The table for a result of `_open`. Called without the lock: a checksum takes about 1 s per 2 GB."""
        if isinstance(source, pa.Table):
            return source
        try:
            if batch.id not in self._verified:
                verify(batch, source)
            table = decoded(batch, source)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._damage(batch.id, batch.collection, f"{error}.") from error
        with self._lock:
            if batch in self._between(batch.collection, batch.first_time, batch.time + 1):  # else dropped meanwhile
                self._verified.add(batch.id)
                self._cache.add(batch, table, len(source))
        return table

    def _damage(self, batch: int, collection: ObjectId, detail: str) -> Damaged:
        return Damaged(f"batch {batch} of {self._name_of(collection)} is damaged", detail)

    def _written(self, batch: Batch, table: pa.Table) -> None:
        """Caches the table of a batch that this process has written, which needs no verification."""
        self._verified.add(batch.id)
        if batch.file is None:
            self._cache.add(batch, table)

    def _forget(self, gone: Iterable[Batch]) -> None:
        for batch in gone:
            self._leaving.pop(batch.id, None)
            self._verified.discard(batch.id)
            self._cache.remove(batch)
            if batch.file is not None:
                self._unused.append(batch.file)

    def remove_unused(self) -> None:
        """Removes the files of batches that were dropped or replaced. Blocks for as long as the file system takes."""
        while self._unused:
            self._payloads.remove(self._unused.pop())

    # -- compaction ---------------------------------------------------------------------------------------------

    def collections(self) -> list[ObjectId]:
        return list(self._batches)

    def mergeable(self, collection: ObjectId, since: int) -> tuple[Batch, ...]:
        """The newest run of batches with times <= `since` that is worth merging; empty if there is none."""
        batches = self.batches(collection)
        return newest_run(batches[: batches.bisect_right(since, key=_time)], consolidates=True)

    def mergeable_history(self, collection: ObjectId, since: int, before: int) -> tuple[Batch, ...]:
        """The newest run of batches with `since < time < before` that `merge_history` should merge; may be empty."""
        batches = self.batches(collection)
        first = batches.bisect_right(since, key=_first_time)
        return newest_run(
            batches[first : batches.bisect_left(before, key=_time)], consolidates=False, spans_max=SPANS_MAX
        )

    def merge_history(self, run: tuple[Batch, ...]) -> Payload:
        """The payload of one batch that replaces a run: the same updates at the same times."""
        tables, layout = self._read_for_merge(run)
        if any(u.DIFF in table.column_names for table in tables):
            tables = [u.as_changes(table) for table in tables]
        spans = Spans.joined((batch.time, batch.rows, batch.spans) for batch in run)
        return replace(self.prepare(pa.concat_tables(tables), layout), spans=spans)

    def _read_for_merge(self, run: tuple[Batch, ...]) -> tuple[list[pa.Table], Layout | None]:
        """The tables of batches to merge, in the current layout of their collection.

        A payload of a later layout cannot be among them, because the layout is determined after the run.
        """
        layout = self._layout_of(run[0].collection)
        tables = self._tables(run)
        return (tables if layout is None else [layout.read(table) for table in tables]), layout

    def _tables(self, run: tuple[Batch, ...]) -> list[pa.Table]:
        """The tables of batches to merge. The lock is released between batches so that commits can proceed."""
        tables = []
        for batch in run:
            with self._lock:
                self._check_rows(batch.collection)
                source = self._open(batch)
            tables.append(self._table(batch, source))
        return tables

    def merge(self, run: tuple[Batch, ...]) -> Payload:
        """The payload of one batch at one time that replaces a run: rows if all diffs are +1.

        Its retractions are equal to no other row. Copies of a row are not added up (`merging`).
        """
        tables, layout = self._read_for_merge(run)
        if all(u.DIFF not in table.column_names for table in tables):
            return self.prepare(pa.concat_tables(tables), layout)
        found = merging.summed(tables, self._scratch)
        if found.bytes <= spill.MEMORY_BYTES_MAX:
            return self.prepare(pa.concat_tables([found.schema.empty_table(), *found.tables()]), layout)
        return self.prepare_stream(
            found.schema, (batch for table in found.tables() for batch in _record_batches(table)), layout
        )

    def replace(self, tx: sqlite3.Connection, run: tuple[Batch, ...], merged: Payload, since: int) -> Batch | None:
        """Replaces a run by the merged batch, within a transaction. Call `replaced` after the commit.

        `since` becomes durable if it is greater than the stored one; pass 0 after `merge_history`.
        Returns None and does nothing if the collection has been dropped.
        """
        found = tx.execute("UPDATE collections SET since = max(since, ?) WHERE id = ?", (since, run[0].collection))
        if found.rowcount == 0:
            return None
        inline = [batch for batch in run if batch.file is None]
        leaving = dict(zip((batch.id for batch in inline), self._tables(tuple(inline)), strict=True))
        with self._lock:  # readers whose index still has the run find it here after its rows are deleted
            self._leaving.update(leaving)
        tx.executemany("DELETE FROM batches WHERE id = ?", [(batch.id,) for batch in run])
        return self.insert(tx, run[0].collection, run[-1].time, merged)

    def replaced(self, run: tuple[Batch, ...], batch: Batch, merged: Payload) -> None:
        """After the commit: makes the merged batch visible to readers. `remove_unused` removes the run's files.

        The collection may have been dropped meanwhile.
        """
        with self._lock:
            old = self.batches(batch.collection)[:]
            if run[0] not in old:
                self._forget((batch,))
                return
            first = old.index(run[0])
            if merged.spans is None:
                self._merged_to[batch.collection] = max(batch.time, self._merged_to.get(batch.collection, batch.time))
            self._batches[batch.collection] = SharedList((*old[:first], batch, *old[first + len(run) :]))
            self._written(batch, merged.stored_table)
            self._forget(run)

    def sizes_over_time(self, collection: ObjectId) -> LogSizes:
        """Cumulative sizes of a collection over time. A batch's bytes are distributed over its times by row counts."""
        times: list[Timestamp] = []
        rows: list[int] = []
        bytes_: list[int] = []
        rows_before = bytes_before = 0
        for batch in self.batches(collection):
            ends = np.array([batch.rows]) if batch.spans is None else batch.spans.ends
            times += batch.times(0, batch.time + 1)
            rows += (rows_before + ends).tolist()
            bytes_ += (bytes_before + ends * (batch.bytes / max(batch.rows, 1))).astype(np.int64).tolist()
            rows_before += batch.rows
            bytes_before += batch.bytes
        return LogSizes(times, rows, bytes_)

    def sizes(self) -> Mapping[ObjectId, tuple[int, int]]:
        """The numbers of rows and bytes that are stored for each collection."""
        return {id: (sum(b.rows for b in bs), sum(b.bytes for b in bs)) for id, bs in list(self._batches.items())}


def _time(batch: Batch) -> Timestamp:
    return batch.time


def _first_time(batch: Batch) -> Timestamp:
    return batch.first_time


def _stream(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream, as `pa.ipc.new_stream` writes it but in a fifth of the time.

    No column is dictionary-encoded, and none has several chunks.
    """
    return b"".join((table.schema.serialize(), *(part.serialize() for part in table.to_batches()), _END_OF_STREAM))


def _record_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in record batches of at most BATCH_ROWS rows and about COPIED_BYTES bytes.

    Each is a copy made on demand, which combines the chunks of small commits into few large batches.
    """
    for part in spill.slices(table, COPIED_BYTES):
        for start in range(0, part.num_rows, BATCH_ROWS):
            yield from part.slice(start, BATCH_ROWS).combine_chunks().to_batches()
