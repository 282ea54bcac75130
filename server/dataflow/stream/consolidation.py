"""Consolidates and sorts the changes of one time in chunks that fit into memory, in threads.

Each chunk is a separate unit of work in a thread: between two chunks other work runs, and the caller can be cancelled.
Every chunk that is not small is written to disk at once, because it may be buffered for a slow client for hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from catalog import spill
from server.dataflow.stream.order import THREAD_ROWS, Codes, SortColumns, codes, sorted_rows

_THREADS = ThreadPoolExecutor(2, "tidewire-consolidation")  # separate, so that a large snapshot does not delay commits

RESIDENT_BYTES = 1 << 20  # of a chunk that is buffered in memory

T = TypeVar("T")


async def consolidated(
    tables: list[pa.Table], directory: Path | None, *, sampled: bool = False, by: Sequence[str] | None = None
) -> AsyncGenerator[pa.Table]:
    """The consolidated changes of `tables` (rows or changes) in chunks, none of them empty. `directory`: for files.

    `sampled`: the first chunk is a random sample of the rows, and follows when all rows have been read. `by`: columns;
    rows that are equal in them are in the same chunk.
    """
    if by is not None:
        work = spill.grouped(tables, directory, by)
    else:
        work = (spill.partitioned if sampled else spill.consolidated)(tables, directory)
    little = min(RESIDENT_BYTES, spill.MEMORY_BYTES_MAX)
    if sum(table.num_rows for table in tables) < THREAD_ROWS and spill.size_of(tables) <= little:
        for chunk in work:
            if chunk is not None and chunk.num_rows:
                yield chunk
        return
    step: Future[pa.Table | None] = Future()
    step.set_result(None)
    try:
        while True:
            step = _THREADS.submit(_next, work, directory)
            chunk = await asyncio.wrap_future(step)
            if chunk is work:
                return
            if chunk is not None and chunk.num_rows:
                yield chunk
    finally:
        step.add_done_callback(lambda _: work.close())  # a running thread cannot be stopped


def _next(work: Iterator[pa.Table | None], directory: Path | None) -> object:
    """The next chunk, or `work` itself at the end: a future cannot raise StopIteration."""
    chunk = next(work, work)
    return spill.on_disk(chunk, directory) if isinstance(chunk, pa.Table) and chunk.nbytes > RESIDENT_BYTES else chunk


class Sorting(Protocol):
    """The order of the changes of one time. Implemented by `Envelope`."""

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]: ...
    @property
    def sorts(self) -> bool: ...
    @property
    def needs_all_rows(self) -> bool: ...


async def ordered(tables: list[pa.Table], directory: Path | None, sorting: Sorting) -> AsyncIterator[pa.Table]:
    """As `consolidated`, with chunks that are ordered among each other: no row sorts before a row of an earlier chunk.

    Rows that are equal in their sort columns are in the same chunk. Range partitioning: the first chunk, selected by a
    hash, is a random sample of the rows and determines the bounds of the ranges.
    """
    divides = sorting.sorts and not sorting.needs_all_rows and spill.size_of(tables) > spill.MEMORY_BYTES_MAX
    async with aclosing(consolidated(tables, directory, sampled=divides)) as chunks:
        if sorting.needs_all_rows:
            if found := [chunk async for chunk in chunks]:
                yield pa.concat_tables(found)
            return
        if not divides:
            async for chunk in chunks:
                yield chunk
            return
        first = await anext(chunks, None)
        if first is None:
            return
        sortable = await sorting.sort_columns(first)
        count = spill.partitions_for(spill.size_of(tables))
        bounds = await _step(_bounds, sortable[1], count)
        partitions = spill.Partitions(first.schema, count, directory)
        try:
            await _step(_add, partitions, bounds, *sortable)
            async for chunk in chunks:
                await _step(_add, partitions, bounds, *await sorting.sort_columns(chunk))
            await _step(partitions.written)
            for number in range(count):
                found = list(partitions.tables(number))
                if found:
                    yield pa.concat_tables(found)
        finally:
            partitions.close()


async def resident(table: pa.Table, directory: Path | None) -> pa.Table:
    """The table itself if it is small, else a copy on disk."""
    return table if table.nbytes <= RESIDENT_BYTES else await _step(spill.on_disk, table, directory)


async def _step(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.wrap_future(_THREADS.submit(work, *arguments))


def _bounds(columns: SortColumns, count: int) -> list[pa.Array]:
    """For each column its value at the beginning of every range but the first."""
    order = sorted_rows([codes(column, key) for column, key in columns])
    chosen = order[np.linspace(0, len(order), count, endpoint=False, dtype=np.int64)[1:]]
    return [column.take(pa.array(chosen)).combine_chunks() for column, _ in columns]


def _add(partitions: spill.Partitions, bounds: list[pa.Array], chunk: pa.Table, columns: SortColumns) -> None:
    both = [
        (pa.chunked_array([*_chunks(bound), *column.chunks], column.type), key)
        for bound, (column, key) in zip(bounds, columns, strict=True)
    ]
    before = len(bounds[0])
    order: Codes = sorted_rows([codes(column, key) for column, key in both])
    ranges = np.empty(len(order), np.int64)
    ranges[order] = np.cumsum(order < before)  # a bound precedes rows equal to it, as the sort is stable
    partitions.add(chunk, ranges[before:])


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]
