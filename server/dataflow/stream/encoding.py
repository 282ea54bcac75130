"""Rows in wire format, encoded once for all readers of the same bytes. Large results are in a mapped file."""

from __future__ import annotations

import asyncio
import itertools
import mmap
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalog import free_space
from catalog.spill import slices
from catalog.updates import size_of

CHUNK_ROWS = 8_192  # encoded and written at once
CHUNK_BYTES = 512 * 1024  # of Arrow data, likewise
SMALL_BYTES = CHUNK_BYTES // 4
THREAD_ROWS = 1_024  # from this number on a chunk is encoded in a thread, to keep the event loop responsive
MEMORY_BYTES_MAX = 1024 * 1024  # of one time's changes; a larger result is written to a file

Encode = Callable[[pa.Table], bytes]
Data = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as messages for clients.

    `chunks`: the units of writing, each a sequence of complete messages. `bytes`: their total size.
    """

    rows: int
    chunks: tuple[Data, ...]
    bytes: int


def chunks_of(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in slices of at most CHUNK_ROWS and about CHUNK_BYTES."""
    for part in slices(rows, CHUNK_BYTES):
        for start in range(0, part.num_rows, CHUNK_ROWS):
            yield part.slice(start, min(CHUNK_ROWS, part.num_rows - start))  # pyarrow does not clip without columns


async def encoded_chunks(rows: pa.Table, encode: Encode) -> AsyncIterator[bytes]:
    """Encodes the rows chunk by chunk."""
    for chunk in [rows] if _is_small(rows) else chunks_of(rows):
        if _is_small(chunk):
            yield encode(chunk)
        else:
            yield await asyncio.to_thread(encode, chunk)


def _is_small(rows: pa.Table) -> bool:
    """Whether the rows are encoded at once, as one chunk."""
    return 0 < rows.num_rows < THREAD_ROWS and size_of(rows) < SMALL_BYTES


async def encoded(rows: pa.Table, encode: Encode, directory: Path | None) -> Encoded:
    """Encodes all rows. OSError if they are written to `directory` and the disk is full."""
    if rows.nbytes <= MEMORY_BYTES_MAX:
        few = tuple([chunk async for chunk in encoded_chunks(rows, encode)])
        return Encoded(rows.num_rows, few, sum(map(len, few)))
    with tempfile.TemporaryFile(dir=directory) as file:
        ends = [0]
        async for chunk in encoded_chunks(rows, encode):
            await asyncio.to_thread(free_space.check, directory)
            await asyncio.to_thread(file.write, chunk)
            ends.append(ends[-1] + len(chunk))
        file.flush()
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    many = tuple(view[start:end] for start, end in itertools.pairwise(ends))
    return Encoded(rows.num_rows, many, ends[-1])
