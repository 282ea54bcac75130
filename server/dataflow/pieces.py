"""Changes of one time in pieces that fit into memory, however many they are, made beside the loop.

Work of a piece is a step in a thread: between two steps others have their turn, and whoever waits can be cancelled. A
piece that is not small lies on disk as soon as it is made: it may wait for a client for hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from catalog import spill
from server.dataflow.order import THREAD_ROWS, Codes, SortColumns, codes, sorted_rows

_THREADS = ThreadPoolExecutor(2, "tidewire-pieces")  # of their own: a large snapshot must not delay a commit's thread

RESIDENT_BYTES = 1 << 20  # of a piece that waits in memory

T = TypeVar("T")


async def consolidated(tables: list[pa.Table], directory: Path | None) -> AsyncGenerator[pa.Table]:
    """What `tables` (of rows or changes) add up to; nothing if that is nothing. `directory` takes what is too much."""
    work = spill.consolidated(tables, directory)
    little = min(RESIDENT_BYTES, spill.MEMORY_BYTES_MAX)
    if sum(table.num_rows for table in tables) < THREAD_ROWS and spill.size_of(tables) <= little:
        for piece in work:
            if piece is not None and piece.num_rows:
                yield piece
        return
    step: Future[pa.Table | None] = Future()
    step.set_result(None)
    try:
        while True:
            step = _THREADS.submit(_next, work, directory)
            piece = await asyncio.wrap_future(step)
            if piece is work:
                return
            if piece is not None and piece.num_rows:
                yield piece
    finally:
        step.add_done_callback(lambda _: work.close())  # a step that runs cannot be stopped


def _next(work: Iterator[pa.Table | None], directory: Path | None) -> object:
    """`work` itself at the end: a StopIteration cannot pass a future."""
    piece = next(work, work)
    return spill.on_disk(piece, directory) if isinstance(piece, pa.Table) and piece.nbytes > RESIDENT_BYTES else piece


class Sorting(Protocol):
    """How the changes of a time are to be ordered; an `Envelope` is one."""

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns] | None: ...
    @property
    def whole(self) -> bool: ...


async def ordered(tables: list[pa.Table], directory: Path | None, sorting: Sorting) -> AsyncIterator[pa.Table]:
    """As `consolidated`; and no row of a later piece belongs before one of an earlier piece.

    Rows that are equal in what sorts them come in one piece. The first piece of many is a fair sample, being chosen by
    a hash: it gives the bounds between ranges of rows, and each range is a partition.
    """
    async with aclosing(consolidated(tables, directory)) as pieces:
        if sorting.whole:
            if found := [piece async for piece in pieces]:
                yield pa.concat_tables(found)
            return
        first = await anext(pieces, None)
        if first is None:
            return
        sortable = None
        if spill.size_of(tables) > spill.MEMORY_BYTES_MAX:
            sortable = await sorting.sort_columns(first)
        if sortable is None:
            yield first
            async for piece in pieces:
                yield piece
            return
        count = spill.partitions_for(spill.size_of(tables))
        bounds = await _step(_bounds, sortable[1], count)
        partitions = spill.Partitions(first.schema, count, directory)
        try:
            await _step(_add, partitions, bounds, *sortable)
            async for piece in pieces:
                sortable = await sorting.sort_columns(piece)
                assert sortable is not None
                await _step(_add, partitions, bounds, *sortable)
            await _step(partitions.written)
            for number in range(count):
                found = list(partitions.tables(number))
                if found:
                    yield pa.concat_tables(found)
        finally:
            partitions.close()


async def resident(table: pa.Table, directory: Path | None) -> pa.Table:
    """The table itself if it is small, else one that lies on disk."""
    return table if table.nbytes <= RESIDENT_BYTES else await _step(spill.on_disk, table, directory)


async def _step(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.wrap_future(_THREADS.submit(work, *arguments))


def _bounds(columns: SortColumns, count: int) -> list[pa.Array]:
    """Of each column the values that the ranges but the first begin with."""
    order = sorted_rows([codes(column, key) for column, key in columns])
    chosen = order[np.linspace(0, len(order), count, endpoint=False, dtype=np.int64)[1:]]
    return [column.take(pa.array(chosen)).combine_chunks() for column, _ in columns]


def _add(partitions: spill.Partitions, bounds: list[pa.Array], piece: pa.Table, columns: SortColumns) -> None:
    both = [
        (pa.chunked_array([*_chunks(bound), *column.chunks], column.type), key)
        for bound, (column, key) in zip(bounds, columns, strict=True)
    ]
    before = len(bounds[0])
    order: Codes = sorted_rows([codes(column, key) for column, key in both])
    ranges = np.empty(len(order), np.int64)
    ranges[order] = np.cumsum(order < before)  # a bound stands before the rows that equal it: the sort is stable
    partitions.add(piece, ranges[before:])


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]
