"""Consolidation of changes that do not fit into memory: they are divided by the values of a column, or partitioned on
disk, and one part is in memory at a time.

Files are memory-mapped and unlinked after they are written: the kernel can evict their pages, no file remains when
the process ends in any way, and the space is freed with the last table that uses the file.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import free_space, updates
from catalog.ranges import ranges
from protocol.columnar.gather import rows_at
from protocol.columnar.hashing import Hashes, key_hashes, quick_hashes

MEMORY_BYTES_MAX = 32 << 20  # consolidated in memory, which needs about four times as much
Reader: TypeAlias = pa.ipc.RecordBatchFileReader
PARTITION_BYTES = 8 << 20
PARTITIONS_MAX = 512  # of a table on disk; larger ones have larger partitions
SLICE_BYTES = 16 << 20  # divided into partitions at a time
HASHED_BYTES = 1 << 20  # hashed at a time
RANGE_PARTITIONS_MAX = 4  # the rows of a range, or of a sample, that are in memory at a time, in PARTITION_BYTES
SAMPLED_PARTS, SAMPLED_ROWS = 16, 256  # by which the column of a sample is chosen


def mapped(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], directory: Path | None
) -> pa.ipc.RecordBatchFileReader:
    """Writes batches to an unlinked file and opens it for reading. OSError if the disk is full."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                free_space.check(directory)
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name))


class Partitions:
    """Rows on disk, divided into numbered partitions."""

    def __init__(self, schema: pa.Schema, count: int, directory: Path | None) -> None:
        self.count = count
        self.schema = schema
        self._directory = directory
        self._file = tempfile.NamedTemporaryFile(dir=directory)  # noqa: SIM115 (closed when it has been written)
        self._writer = pa.ipc.new_file(self._file, schema)
        self._written = 0
        self._batches: list[list[int]] = [[] for _ in range(count)]  # per partition: batch numbers in the file
        self._reader: Reader | None = None

    def add(self, table: pa.Table, numbers: NDArray[np.integer]) -> None:
        """Appends rows; `numbers` has the partition of each. Needs as much memory as the table.

        OSError if the disk is full.
        """
        free_space.check(self._directory)
        ordered = rows_at(table, np.argsort(numbers, kind="stable"))
        counts = np.bincount(numbers, minlength=self.count)
        starts = np.cumsum(counts) - counts
        for partition in np.flatnonzero(counts):
            for batch in ordered.slice(starts[partition], counts[partition]).to_batches():
                self._writer.write_batch(batch)
                self._batches[partition].append(self._written)
                self._written += 1

    def written(self) -> None:
        """Ends the writes: unlinks the file and opens it for reading."""
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
        """Discards a file that is still being written. May be called twice."""
        if self._reader is None and not self._file.closed:
            self._file.close()


def slices(table: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """Consecutive slices of a table of at most about `bytes_max` bytes each."""
    rows = max(1, int(table.num_rows * bytes_max / max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, min(rows, table.num_rows - start))  # pyarrow does not clip without columns


def partitions_for(size: int) -> int:
    """The number of partitions for `size` bytes."""
    return max(1, min(PARTITIONS_MAX, -(-size // PARTITION_BYTES)))


def size_of(tables: Iterable[pa.Table]) -> int:
    return sum(table.nbytes for table in tables)


def consolidated(tables: list[pa.Table], directory: Path | None) -> Generator[pa.Table | None, None, None]:
    """Yields the sum of `tables` (rows or changes, at least one table) as consolidated changes, in several tables.

    Yields one table if all fit into memory. Otherwise also yields None between units of work, so that the caller can
    do other work or stop. The first rows precede most of the work: rows in the order of a column are divided by its
    values; of others a sample is consolidated before the rest is partitioned on disk.
    """
    if size_of(tables) <= MEMORY_BYTES_MAX:
        yield updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
        return
    parts = [part for table in tables for part in slices(table, PARTITION_BYTES)]
    divided = yield from ranges(parts, PARTITION_BYTES, RANGE_PARTITIONS_MAX * PARTITION_BYTES)
    if divided is not None:
        yield from divided.consolidated()
        return
    sample = _sample_of(parts, partitions_for(size_of(tables)))
    found: list[pa.Table] = []
    for part in parts if sample is not None else ():
        assert sample is not None
        found.append(updates.as_changes(part.filter(pa.array(sample.mask(part)))))
        if size_of(found) > RANGE_PARTITIONS_MAX * PARTITION_BYTES:  # a frequent value
            sample = None
            break
        yield None
    if sample is not None:
        yield updates.consolidate(pa.concat_tables(found))
    del found
    yield from partitioned(tables, directory, sample)


@dataclass(frozen=True, slots=True)
class Sample:
    """About one in `share` rows, selected by the values of a column: of equal rows either all or none."""

    column: str
    share: int

    def mask(self, table: pa.Table) -> NDArray[np.bool_]:
        return (quick_hashes(table[self.column]) >> np.uint64(32)) * np.uint64(self.share) < np.uint64(1 << 32)


def _sample_of(parts: list[pa.Table], share: int) -> Sample | None:
    """A sample by the column with the most distinct values in some of the rows. None if there is no column."""
    chosen = parts[:: max(1, len(parts) // SAMPLED_PARTS)]
    some = pa.concat_tables([part.slice(0, SAMPLED_ROWS).drop_columns(_diff(part)) for part in chosen])
    counts = {name: distinct(quick_hashes(some[name])) for name in some.column_names}
    return Sample(max(counts, key=counts.__getitem__), share) if counts else None


def _diff(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if name == updates.DIFF]


def grouped(
    tables: list[pa.Table], directory: Path | None, by: Sequence[str]
) -> Generator[pa.Table | None, None, None]:
    """As `consolidated`, with rows that are equal in the columns `by` in the same table."""
    if size_of(tables) <= MEMORY_BYTES_MAX:
        yield from consolidated(tables, directory)
    else:
        yield from partitioned(tables, directory, by=by)


def partitioned(
    tables: list[pa.Table], directory: Path | None, omitted: Sample | None = None, by: Sequence[str] | None = None
) -> Generator[pa.Table | None, None, None]:
    """As `consolidated`, of rows that are not in the sample `omitted`, with partitions on disk.

    The first table is yielded when all rows have been read. It is a random sample of the consolidated rows. `by`: the
    columns whose values select the partition of a row; None: all.
    """
    schema = updates.as_changes(tables[0].slice(0, 0)).schema
    parts = (part for table in tables for part in slices(table, SLICE_BYTES))
    if omitted is not None:
        parts = (part.filter(pa.array(~omitted.mask(part))) for part in parts)
    yield from partitioned_slices(schema, parts, size_of(tables), directory, by)


def partitioned_slices(
    schema: pa.Schema, parts: Iterable[pa.Table], size: int, directory: Path | None, by: Sequence[str] | None = None
) -> Generator[pa.Table | None, None, None]:
    """As `partitioned`, of slices that are in memory one at a time. `schema`: of changes. `size`: of all, in bytes."""
    partitions = Partitions(schema, partitions_for(size), directory)
    bytes_per_partition = max(PARTITION_BYTES, size // partitions.count)
    try:
        for part in parts:
            changes = updates.as_changes(part)
            hashes = hashes_of(_selecting(changes, by))
            if distinct(hashes) * 2 < changes.num_rows:  # else copies of one row overfill a partition
                changes = updates.consolidate(changes)
                hashes = hashes_of(_selecting(changes, by))
            partitions.add(changes, ((hashes >> np.uint64(32)) * np.uint64(partitions.count)) >> np.uint64(32))
            yield None
        partitions.written()
        for number in range(partitions.count):
            yield _sum(schema, partitions.tables(number), bytes_per_partition)
    finally:
        partitions.close()


def _selecting(changes: pa.Table, by: Sequence[str] | None) -> pa.Table:
    return updates.rows_of(changes) if by is None else changes.select(list(by))


def _sum(schema: pa.Schema, tables: Iterator[pa.Table], bytes_per_partition: int) -> pa.Table:
    """Consolidates one partition. Consolidates early when it has grown by half: memory is O(distinct rows)."""
    gathered, size, limit = [schema.empty_table()], 0, 2 * bytes_per_partition
    for table in tables:
        gathered.append(table)
        size += updates.size_of(table)
        if size > limit:
            gathered = [updates.consolidate(pa.concat_tables(gathered))]
            size = gathered[0].nbytes
            limit = max(limit, size + size // 2)
    return updates.consolidate(pa.concat_tables(gathered))


def hashes_of(rows: pa.Table) -> Hashes:
    """Hashes of whole rows, computed HASHED_BYTES at a time."""
    found = [key_hashes(part, part.column_names) for part in slices(rows, HASHED_BYTES)]
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def distinct(hashes: Hashes) -> int:
    """The number of distinct values. For hashes np.unique takes 150 times as long as sorting."""
    ordered = np.sort(hashes)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + (len(ordered) > 0)


def rows(tables: list[pa.Table], directory: Path | None) -> pa.Table:
    """The sum of `tables` as one table of rows, on disk if it is large. NegativeCount if a multiplicity is negative."""
    return collected((updates.expand(part) for part in consolidated(tables, directory) if part is not None), directory)


def applied(old: pa.Table, changes: pa.Table, directory: Path | None) -> pa.Table:
    """The rows `old` after `changes`, as `updates.apply`. Holds one slice of `old` and the touched rows in memory."""
    retracted = changes.filter(pc.less(changes[updates.DIFF], 0))
    if old.num_rows < updates.SOUGHT_SHARE * retracted.num_rows:
        return rows([old, changes], directory)
    likely = [pa.array(updates.like(part, retracted)) for part in slices(old, SLICE_BYTES)]
    masked = zip(slices(old, SLICE_BYTES), likely, strict=True)
    touched = pa.concat_tables([old.slice(0, 0), *(part.filter(mask) for part, mask in masked)])
    if size_of([touched, changes]) > MEMORY_BYTES_MAX:
        return rows([old, changes], directory)
    others = zip(slices(old, SLICE_BYTES), likely, strict=True)
    left = (part.filter(pc.invert(mask)) for part, mask in others)
    return collected(itertools.chain(left, [updates.apply(touched, changes)]), directory)


def on_disk(table: pa.Table, directory: Path | None) -> pa.Table:
    """The table in a memory-mapped file."""
    return mapped(table.schema, table.combine_chunks().to_batches(), directory).read_all()


def collected(tables: Iterator[pa.Table], directory: Path | None) -> pa.Table:
    """Concatenates tables, at least one: in memory if they are small, else on disk."""
    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
        gathered.append(table)
        size += updates.size_of(table)
        if size > MEMORY_BYTES_MAX:
            every = itertools.chain(gathered, tables)
            batches = (batch for each in every for batch in each.combine_chunks().to_batches())
            return mapped(table.schema, batches, directory).read_all()
    return gathered[0] if len(gathered) == 1 else pa.concat_tables(gathered)
