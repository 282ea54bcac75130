"""Changes that are too many for memory, consolidated out of it: partitions in a file, one of them in memory at a time.

What lies in a file here is mapped into memory and has no name any more: the machine takes the pages back when it needs
them, nothing is left behind however the process ends, and the file goes with the last table over it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.hashing import Hashes, key_hashes

MEMORY_BYTES_MAX = 32 << 20  # so much is consolidated in memory, which takes some four times as much
Reader: TypeAlias = pa.ipc.RecordBatchFileReader
PARTITION_BYTES = 8 << 20
PARTITIONS_MAX = 512  # each piece is split into so many batches: of many gigabytes partitions become larger instead
PIECE_BYTES = 16 << 20  # read, split and written at once
HASHED_BYTES = 1 << 20  # hashed at once


def mapped(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], directory: Path | None
) -> pa.ipc.RecordBatchFileReader:
    """Writes batches to a file without a name, and reads it. OSError without room."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name))


class Partitions:
    """Rows on disk, by the number of the partition that each was given."""

    def __init__(self, schema: pa.Schema, count: int, directory: Path | None) -> None:
        self.count = count
        self.schema = schema
        self._file = tempfile.NamedTemporaryFile(dir=directory)  # noqa: SIM115 (closed when it has been written)
        self._writer = pa.ipc.new_file(self._file, schema)
        self._written = 0
        self._batches: list[list[int]] = [[] for _ in range(count)]  # of each partition, their numbers in the file
        self._reader: Reader | None = None

    def add(self, table: pa.Table, numbers: NDArray[np.integer]) -> None:
        """`numbers`: each row's partition. Memory: as much again as the table."""
        ordered = table.take(pa.array(np.argsort(numbers, kind="stable"))).combine_chunks()
        counts = np.bincount(numbers, minlength=self.count)
        starts = np.cumsum(counts) - counts
        for partition in np.flatnonzero(counts):
            for batch in ordered.slice(starts[partition], counts[partition]).to_batches():
                self._writer.write_batch(batch)
                self._batches[partition].append(self._written)
                self._written += 1

    def written(self) -> None:
        """Nothing more will be added: from here on it is read, and the file has no name any more."""
        self._writer.close()
        self._file.flush()
        self._reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        self._file.close()

    def tables(self, partition: int) -> Iterator[pa.Table]:
        """The partition's rows in the order in which they were added."""
        assert self._reader is not None
        for number in self._batches[partition]:
            yield pa.Table.from_batches([self._reader.get_batch(number)])

    def close(self) -> None:
        """Gives up what was written. May be called twice."""
        if self._reader is None and not self._file.closed:
            self._file.close()


def pieces(table: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """Consecutive slices of a table, each of at most about so many bytes."""
    rows = max(1, int(table.num_rows * bytes_max / max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, min(rows, table.num_rows - start))  # pyarrow does not clip without columns


def partitions_for(size: int) -> int:
    """How many partitions so many bytes are split into."""
    return max(1, min(PARTITIONS_MAX, -(-size // PARTITION_BYTES)))


def size_of(tables: Iterable[pa.Table]) -> int:
    return sum(table.nbytes for table in tables)


def consolidated(tables: list[pa.Table], directory: Path | None) -> Generator[pa.Table | None, None, None]:
    """What `tables` (of rows or of changes, at least one) add up to, as consolidated changes, piece by piece.

    One piece if they fit into memory; else None now and then while there is work before the next piece, so that a
    caller can do something else, or give up, in between.
    """
    if size_of(tables) <= MEMORY_BYTES_MAX:
        yield updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
        return
    schema = updates.as_changes(tables[0].slice(0, 0)).schema
    partitions = Partitions(schema, partitions_for(size_of(tables)), directory)
    share = max(PARTITION_BYTES, size_of(tables) // partitions.count)
    try:
        for table in tables:
            for piece in pieces(table, PIECE_BYTES):
                changes = updates.as_changes(piece)
                hashes = hashes_of(piece if piece is not changes else updates.rows_of(changes))
                if distinct(hashes) * 2 < changes.num_rows:  # or rows that are many times there were all in one
                    changes = updates.consolidate(changes)
                    hashes = hashes_of(updates.rows_of(changes))
                partitions.add(changes, ((hashes >> np.uint64(32)) * np.uint64(partitions.count)) >> np.uint64(32))
                yield None
        partitions.written()
        for number in range(partitions.count):
            yield _sum(schema, partitions.tables(number), share)
    finally:
        partitions.close()


def _sum(schema: pa.Schema, tables: Iterator[pa.Table], share: int) -> pa.Table:
    """Consolidated whenever it has grown by half: memory follows the distinct rows."""
    gathered, size, limit = [schema.empty_table()], 0, 2 * share
    for table in tables:
        gathered.append(table)
        size += table.nbytes
        if size > limit:
            gathered = [updates.consolidate(pa.concat_tables(gathered))]
            size = gathered[0].nbytes
            limit = max(limit, size + size // 2)
    return updates.consolidate(pa.concat_tables(gathered))


def hashes_of(rows: pa.Table) -> Hashes:
    """Of whole rows, a few at a time."""
    found = [key_hashes(piece, piece.column_names) for piece in pieces(rows, HASHED_BYTES)]
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def distinct(hashes: Hashes) -> int:
    """How many different values there are. For hashes np.unique takes 150 times as long as sorting them."""
    ordered = np.sort(hashes)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + (len(ordered) > 0)


def summed(tables: list[pa.Table], directory: Path | None) -> pa.Table:
    """What `tables` add up to as one table of changes, on disk if it is too much for memory."""
    return kept((piece for piece in consolidated(tables, directory) if piece is not None), directory)


def rows(tables: list[pa.Table], directory: Path | None) -> pa.Table:
    """What `tables` add up to as one table of rows, likewise. NegativeCount if there are less than none of a row."""
    return kept((updates.expand(piece) for piece in consolidated(tables, directory) if piece is not None), directory)


def applied(old: pa.Table, changes: pa.Table, directory: Path | None) -> pa.Table:
    """The rows `old` after `changes`, as `updates.apply`: in memory are only a piece of them, and those that go."""
    going = changes.filter(pc.less(changes[updates.DIFF], 0))
    if old.num_rows < updates.SOUGHT_SHARE * going.num_rows:
        return rows([old, changes], directory)
    likely = [pa.array(updates.like(piece, going)) for piece in pieces(old, PIECE_BYTES)]
    masked = zip(pieces(old, PIECE_BYTES), likely, strict=True)
    touched = pa.concat_tables([old.slice(0, 0), *(piece.filter(mask) for piece, mask in masked)])
    if size_of([touched, changes]) > MEMORY_BYTES_MAX:
        return rows([old, changes], directory)
    others = zip(pieces(old, PIECE_BYTES), likely, strict=True)
    left = (piece.filter(pc.invert(mask)) for piece, mask in others)
    return kept(itertools.chain(left, [updates.apply(touched, changes)]), directory)


def on_disk(table: pa.Table, directory: Path | None) -> pa.Table:
    """The table, in a file."""
    return mapped(table.schema, table.combine_chunks().to_batches(), directory).read_all()


def kept(tables: Iterator[pa.Table], directory: Path | None) -> pa.Table:
    """Tables that come, at least one, as one: in memory if they are small, else on disk."""
    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
        gathered.append(table)
        size += table.nbytes
        if size > MEMORY_BYTES_MAX:
            every = itertools.chain(gathered, tables)
            batches = (batch for each in every for batch in each.combine_chunks().to_batches())
            return mapped(table.schema, batches, directory).read_all()
    return pa.concat_tables(gathered)
