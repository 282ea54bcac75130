"""Rows as bytes for the wire, encoded once for all who want the same; many of them lie in a file that is mapped."""

from __future__ import annotations

import asyncio
import itertools
import mmap
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalog.spill import pieces

CHUNK_ROWS = 8_192  # encoded and written at once
CHUNK_BYTES = 512 * 1024  # of Arrow, likewise
THREAD_ROWS = 1_024  # chunks from this size on are encoded in a thread, so that others are answered meanwhile
MEMORY_BYTES_MAX = 1024 * 1024  # of one time's changes; more lie in a file

Encode = Callable[[pa.Table], bytes]
Data = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Encoded:
    """`chunks`: what to write at once; each ends with a whole message. `bytes` of them all."""

    rows: int
    chunks: tuple[Data, ...]
    bytes: int


def chunks_of(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in slices that are encoded at once."""
    for part in pieces(rows, CHUNK_BYTES):
        for start in range(0, part.num_rows, CHUNK_ROWS):
            yield part.slice(start, min(CHUNK_ROWS, part.num_rows - start))  # pyarrow does not clip without columns


async def encoded_chunks(rows: pa.Table, encode: Encode) -> AsyncIterator[bytes]:
    """Each chunk encoded."""
    for chunk in chunks_of(rows):
        if chunk.num_rows < THREAD_ROWS and chunk.nbytes < CHUNK_BYTES // 4:
            yield encode(chunk)
        else:
            yield await asyncio.to_thread(encode, chunk)


async def encoded(rows: pa.Table, encode: Encode, directory: Path | None) -> Encoded:
    """All of the rows. OSError when there are many and no room in `directory`."""
    if rows.nbytes <= MEMORY_BYTES_MAX:
        few = tuple([chunk async for chunk in encoded_chunks(rows, encode)])
        return Encoded(rows.num_rows, few, sum(map(len, few)))
    with tempfile.TemporaryFile(dir=directory) as file:
        ends = [0]
        async for chunk in encoded_chunks(rows, encode):
            await asyncio.to_thread(file.write, chunk)
            ends.append(ends[-1] + len(chunk))
        file.flush()
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    many = tuple(view[start:end] for start, end in itertools.pairwise(ends))
    return Encoded(rows.num_rows, many, ends[-1])
