"""The log: every collection's batches, and what a reader sees of them.

A batch holds a collection's changes at one time: the bounds [time, time + 1) of the design. Its payload is `rows`
when everything is an insertion, else `changes` (see `updates`). A small payload lies in SQLite beside its row, a
large one in a file among the `Payloads`.

The order that keeps it correct at every crash point: a file is complete and synced before the transaction that
names it; a file is unlinked only after the transaction that drops it; files that no row names are swept at start.

Compaction follows `since`, which the server computes from its holders and retention: updates at or before it can no
longer be told apart, so their batches merge, sizes growing geometrically, into one at the greatest of their times;
such a batch says nothing of the times before it.
`since` is on disk before or with the merge, so that a restarted server never offers a time that is gone.

Threads: everything here may be called from any thread; the index is replaced whole, never changed in place.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from catalog import spill
from catalog import updates as u
from catalog.objects import ObjectId, Timestamp
from catalog.payloads import Payloads
from catalog.store import Store, StoreError

INLINE_BYTES = 64 * 1024  # below it a file's two syncs cost more than the bytes do in SQLite
CACHE_BYTES = 256 * 1024 * 1024  # inline payloads kept decoded; files are mapped and need no cache
COLUMN_BYTES = 1_024  # of memory that Arrow needs beside a column's values
MERGE_BATCHES = 8  # a merge of fewer small batches is not worth its transaction
MERGE_ROWS = 64 * 1024  # a merge of at least so many rows is
PIECE_BYTES = 8 * 1024 * 1024  # copied at once while a payload file is written


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch's row in the catalog. `bytes` is the payload's size as stored."""

    id: int
    collection: ObjectId
    time: Timestamp
    rows: int
    bytes: int
    file: str | None


@dataclass(frozen=True, slots=True)
class Payload:
    """Rows or changes that are ready to be named by a transaction, and not yet named."""

    table: pa.Table
    inline: bytes | None
    file: str | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Frontiers:
    """The durable frontiers: nothing before `since` can be read; `upper` is set for materialized views only."""

    since: Timestamp
    upper: Timestamp | None


@dataclass(frozen=True, slots=True)
class LogSizes:
    """A collection's batches in order of time: their times, and the rows and bytes up to each."""

    times: list[Timestamp]
    rows: list[int]
    bytes: list[int]

    def between(self, lower: int, upper: int) -> tuple[int, int]:
        """Rows and bytes of the batches in (lower, upper]."""
        first, last = bisect_right(self.times, lower), bisect_right(self.times, upper)
        if first >= last:
            return 0, 0
        before = (self.rows[first - 1], self.bytes[first - 1]) if first else (0, 0)
        return self.rows[last - 1] - before[0], self.bytes[last - 1] - before[1]


class Compacted(Exception):
    """A merger has swallowed the time that was asked for."""


class Dropped(Exception):
    """The collection is gone: what was to be written has nowhere to go, what was to be read is no more."""


class Damaged(Exception):
    """A payload that the catalog names cannot be read."""


class Log:
    """All collections' batches. Opening it reads the index and sweeps files that nothing names."""

    def __init__(self, store: Store, payloads: Payloads, scratch: Path | None = None) -> None:
        """`scratch`: a local directory for what is too large for memory; None: the system's for temporary files."""
        self._scratch = scratch
        self._store = store
        self._payloads = payloads
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, pa.Table] = OrderedDict()
        self._cache_bytes = 0
        self._batches: dict[ObjectId, tuple[Batch, ...]] = {}
        self._leaving: dict[int, pa.Table] = {}  # inline payloads of runs whose merger is being written
        self._merged_to: dict[ObjectId, Timestamp] = {}  # the time of the latest merger: changes begin after it
        self.durable: dict[ObjectId, Frontiers] = {}
        for id, since, upper in store.read("SELECT id, since, upper FROM collections"):
            self.durable[id] = Frontiers(since, upper)
        rows = store.read("SELECT id, collection, time, rows, bytes, file FROM batches ORDER BY collection, time, id")
        batches = [Batch(*row) for row in rows]
        for collection, own in itertools.groupby(batches, key=lambda batch: batch.collection):
            self._batches[collection] = tuple(own)
        named = {batch.file for batch in batches}
        for orphan in payloads.names() - named:
            payloads.remove(orphan)

    # -- writing ------------------------------------------------------------------------------------------------

    def prepare(self, table: pa.Table) -> Payload:
        """A payload for `table` (rows or changes); blocks while a large one is written and synced."""
        if table.nbytes > INLINE_BYTES:
            return self.prepare_stream(table.schema, _pieces(table))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        inline = sink.getvalue().to_pybytes()
        # The table as it will be read: `table` may be a slice, and would keep all of its parent in memory.
        return Payload(pa.ipc.open_stream(inline).read_all(), inline, None, len(inline))

    def prepare_stream(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Payload:
        """A payload file written batch by batch, however large."""
        file = self._payloads.write(schema, batches)
        table = self._payloads.open(file)
        return Payload(table, None, file, table.nbytes)

    def discard(self, payload: Payload) -> None:
        """The payload's transaction did not happen."""
        if payload.file is not None:
            self._payloads.remove(payload.file)

    def insert(self, tx: sqlite3.Connection, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch:
        """Names a payload, within a transaction. Call `committed` after it. Dropped if the collection is gone."""
        rows = payload.table.num_rows
        cursor = tx.execute(
            "INSERT INTO batches (collection, time, rows, bytes, payload, file) "
            "SELECT id, ?, ?, ?, ?, ? FROM collections WHERE id = ?",
            (time, rows, payload.bytes, payload.inline, payload.file, collection),
        )
        if cursor.rowcount == 0:
            raise Dropped(collection)
        assert cursor.lastrowid is not None
        return Batch(cursor.lastrowid, collection, time, rows, payload.bytes, payload.file)

    def committed(self, written: Iterable[tuple[Batch, Payload]]) -> None:
        """The transaction that named these payloads is on disk: readers may see them."""
        with self._lock:
            for batch, payload in written:
                self._batches[batch.collection] = (*self._batches.get(batch.collection, ()), batch)
                if batch.file is None:
                    self._remember(batch, payload.table)

    def create(self, tx: sqlite3.Connection, collection: ObjectId, frontiers: Frontiers) -> None:
        """A new collection, within a transaction."""
        tx.execute("INSERT INTO collections VALUES (?, ?, ?)", (collection, frontiers.since, frontiers.upper))

    def advance_upper(self, tx: sqlite3.Connection, collection: ObjectId, upper: Timestamp) -> None:
        """Makes a materialized view's upper durable, in the transaction that writes its updates before it."""
        tx.execute("UPDATE collections SET upper = ? WHERE id = ?", (upper, collection))

    def drop(self, tx: sqlite3.Connection, collection: ObjectId) -> None:
        """Forgets a collection, within a transaction. Call `dropped` after it."""
        tx.execute("DELETE FROM batches WHERE collection = ?", (collection,))
        tx.execute("DELETE FROM collections WHERE id = ?", (collection,))

    def dropped(self, collection: ObjectId) -> None:
        """The transaction that forgot the collection is on disk: its files go."""
        with self._lock:
            self._merged_to.pop(collection, None)
            self._forget(self._batches.pop(collection, ()))

    # -- reading ------------------------------------------------------------------------------------------------

    def batches(self, collection: ObjectId) -> tuple[Batch, ...]:
        """In order of time."""
        return self._batches.get(collection, ())

    def _between(self, collection: ObjectId, lower: int, upper: int) -> tuple[Batch, ...]:
        """Those at times in [lower, upper): found, not sought, for a held history may be long."""
        batches = self.batches(collection)
        return batches[bisect_left(batches, lower, key=_time) : bisect_left(batches, upper, key=_time)]

    def times(self, collection: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which something was written, ascending.

        Meant for times above `since`, where every batch is one commit's.
        """
        return list(dict.fromkeys(b.time for b in self._between(collection, lower, upper)))

    def lines(self, collection: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """How many were written in [lower, upper), or from there on, without reading them."""
        if upper is None:
            batches = self.batches(collection)
            upper = batches[-1].time + 1 if batches else 0
        return sum(batch.rows for batch in self._between(collection, lower, upper))

    def rows(self, collection: ObjectId, as_of: int, schema: pa.Schema) -> pa.Table:
        """The collection's rows at `as_of` (since <= as_of < upper), multiplicities applied. Compacted as `changes`.

        In memory are only small ones; the others are mapped files.
        """
        tables = self._load(collection, 0, as_of + 1)
        if all(u.DIFF not in table.column_names for table in tables):
            return pa.concat_tables([schema.empty_table(), *tables])
        return spill.rows([schema.empty_table(), *tables], self._scratch)

    def changes(self, collection: ObjectId, lower: int, upper: int, schema: pa.Schema) -> pa.Table:
        """What happened to the collection in [lower, upper), consolidated as if it were one time.

        Compacted if a merger has swallowed times on both sides of `lower`; whoever holds `since` below it is safe.
        """
        tables = [u.as_changes(table) for table in self._load(collection, lower, upper)]
        return u.consolidate(pa.concat_tables([u.with_diff(schema.empty_table(), 1), *tables]))

    def tables(self, collection: ObjectId, lower: int, upper: int) -> list[pa.Table]:
        """What was written in [lower, upper), from 0 on all there is: rows or changes as they lie there.

        Large ones are mapped files, which can be read as long as their tables are there. Compacted as `changes`.
        """
        return self._load(collection, lower, upper)

    def _load(self, collection: ObjectId, lower: int, upper: int) -> list[pa.Table]:
        # The lock keeps compaction from dropping a batch between the look at the index and its opening.
        with self._lock:
            first = lower or upper  # changes: the state before `lower` is the base; rows: all before `upper` count
            if first <= self._merged_to.get(collection, -1):
                raise Compacted(f"{collection} has no history at {first - 1}")
            return [self._open(b) for b in self._between(collection, lower, upper)]

    def _open(self, batch: Batch) -> pa.Table:
        cached = self._cache.get(batch.id)
        if cached is not None:
            self._cache.move_to_end(batch.id)
            return cached
        if batch.id in self._leaving:
            return self._leaving[batch.id]
        try:
            if batch.file is not None:
                return self._payloads.open(batch.file)
            found = self._store.read("SELECT payload FROM batches WHERE id = ?", (batch.id,))
            if not found:
                raise Dropped(batch.collection)  # on disk, and not yet told to this index
            table = pa.ipc.open_stream(found[0][0]).read_all()
            table.validate(full=True)
        except (OSError, pa.ArrowException, StoreError) as error:
            raise Damaged(f"batch {batch.id} of {batch.collection} cannot be read: {error}") from error
        self._remember(batch, table)
        return table

    def _remember(self, batch: Batch, table: pa.Table) -> None:
        self._cache[batch.id] = table
        self._cache_bytes += _memory_bytes(table)
        while self._cache_bytes > CACHE_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self._cache_bytes -= _memory_bytes(oldest)

    def _forget(self, gone: Iterable[Batch]) -> None:
        for batch in gone:
            self._leaving.pop(batch.id, None)
            table = self._cache.pop(batch.id, None)
            if table is not None:
                self._cache_bytes -= _memory_bytes(table)
            if batch.file is not None:
                self._payloads.remove(batch.file)

    # -- compaction ---------------------------------------------------------------------------------------------

    def collections(self) -> list[ObjectId]:
        return list(self._batches)

    def mergeable(self, collection: ObjectId, since: int) -> tuple[Batch, ...]:
        """The newest run of batches behind `since` that is worth merging; empty if there is none."""
        behind = [b for b in self.batches(collection) if b.time <= since]
        run: list[Batch] = []
        rows = 0
        for batch in reversed(behind):
            if run and batch.rows > 2 * rows:
                break
            run.append(batch)
            rows += batch.rows
        worth = len(run) >= MERGE_BATCHES or (len(run) > 1 and rows >= MERGE_ROWS)
        return tuple(reversed(run)) if worth else ()

    def merge(self, run: tuple[Batch, ...]) -> Payload:
        """The payload of a run's merger: rows where nothing is taken away, else consolidated changes."""
        with self._lock:
            tables = [self._open(batch) for batch in run]
        if all(u.DIFF not in table.column_names for table in tables):
            return self.prepare(pa.concat_tables(tables))
        changes = spill.summed(tables, self._scratch)
        if pc.all(pc.equal(changes[u.DIFF], 1), min_count=0).as_py():
            return self.prepare(u.rows_of(changes))
        return self.prepare(changes)

    def replace(self, tx: sqlite3.Connection, run: tuple[Batch, ...], merged: Payload, since: int) -> Batch | None:
        """Puts the merger in the run's place, within a transaction. Call `replaced` after it.

        None, and nothing is done, if the collection has been dropped.
        """
        found = tx.execute("UPDATE collections SET since = max(since, ?) WHERE id = ?", (since, run[0].collection))
        if found.rowcount == 0:
            return None
        with self._lock:  # a reader whose index still has the run finds it here, once its rows are deleted
            self._leaving.update((batch.id, self._open(batch)) for batch in run if batch.file is None)
        tx.executemany("DELETE FROM batches WHERE id = ?", [(batch.id,) for batch in run])
        return self.insert(tx, run[0].collection, run[-1].time, merged)

    def replaced(self, run: tuple[Batch, ...], batch: Batch, merged: Payload) -> None:
        """The merger is on disk: readers see it, and the run's files go. The collection may be dropped meanwhile."""
        with self._lock:
            old = self._batches.get(batch.collection, ())
            if run[0] not in old:
                self._forget((batch,))
                return
            first = old.index(run[0])
            self._merged_to[batch.collection] = max(batch.time, self._merged_to.get(batch.collection, batch.time))
            self._batches[batch.collection] = (*old[:first], batch, *old[first + len(run) :])
            if batch.file is None:
                self._remember(batch, merged.table)
            self._forget(run)

    def sizes_over_time(self, collection: ObjectId) -> LogSizes:
        """Meant for many questions about the same collection."""
        batches = self.batches(collection)
        return LogSizes(
            [b.time for b in batches],
            list(itertools.accumulate(b.rows for b in batches)),
            list(itertools.accumulate(b.bytes for b in batches)),
        )

    def sizes(self) -> Mapping[ObjectId, tuple[int, int]]:
        """Rows and bytes that each collection keeps."""
        return {id: (sum(b.rows for b in bs), sum(b.bytes for b in bs)) for id, bs in list(self._batches.items())}


def _memory_bytes(table: pa.Table) -> int:
    """Of a table that was read from a stream of its own. Small commits are mostly what Arrow needs around the rows."""
    return table.nbytes + COLUMN_BYTES * (table.num_columns + 2)  # type: ignore[no-any-return]


def _time(batch: Batch) -> Timestamp:
    return batch.time


def _pieces(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in record batches of at most MERGE_ROWS rows and about PIECE_BYTES bytes.

    Each is a copy, made when it is asked for: the tables of small commits become few large batches.
    """
    for piece in spill.pieces(table, PIECE_BYTES):
        for start in range(0, piece.num_rows, MERGE_ROWS):
            yield from piece.slice(start, MERGE_ROWS).combine_chunks().to_batches()
