"""Rows of a table at given positions, where the table may consist of several chunks.

`pa.Table.take` first concatenates the chunks of a column of strings. This copies the whole column for a few rows, and
fails if the column has more than 2 GiB.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.buffers import string_parts

STRING_BYTES_MAX = (1 << 31) - 1  # of an array whose offsets are 32-bit integers
SMALL_BYTES = 4 * 1024 * 1024  # concatenated, which is faster than any other way for less than about 8 MB
BLOCK_ROWS = 8_192  # copied at a time to a buffer that stays in the processor's cache
FEW = 8  # a view of every row takes about as long as copying an eighth of the rows chunk by chunk


def rows_at(table: pa.Table, positions: NDArray[np.integer]) -> pa.Table:
    """The rows at these positions. A column has one chunk, or several if it has more than 2 GiB of strings."""
    indices = pa.array(positions)
    columns = [
        column.chunk(0).take(indices) if column.num_chunks == 1 else _values_at(column, positions)
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema) if columns else table.take(indices)


def _values_at(column: pa.ChunkedArray, positions: NDArray[np.integer]) -> pa.Array | pa.ChunkedArray:
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if len(chunks) < 2:
        return (chunks[0] if chunks else pa.nulls(0, column.type)).take(pa.array(positions))
    is_string = _is_string(column.type)
    if column.nbytes <= SMALL_BYTES or not (is_string or pa.types.is_nested(column.type)):
        return pa.concat_arrays(chunks).take(pa.array(positions))
    if not is_string:
        return _by_chunk(chunks, positions)
    if len(positions) * FEW < sum(map(len, chunks)):
        return _by_chunk(chunks, positions)
    return _by_views(chunks, positions)


def _is_string(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


def _by_chunk(chunks: list[pa.Array], positions: NDArray[np.integer]) -> pa.Array:
    """Takes the values of each chunk, and puts these in order."""
    ends = np.cumsum([len(chunk) for chunk in chunks])
    owners = np.searchsorted(ends, positions, "right")
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(len(chunks) + 1))
    parts = [
        chunk.take(pa.array(positions[order[first:last]] - (end - len(chunk))))
        for chunk, end, first, last in zip(chunks, ends, bounds[:-1], bounds[1:], strict=True)
        if first < last
    ]
    found = pa.concat_arrays(parts) if parts else chunks[0].slice(0, 0)
    if (order[1:] > order[:-1]).all():
        return found
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return found.take(pa.array(places))


def _by_views(chunks: list[pa.Array], positions: NDArray[np.integer]) -> pa.Array | pa.ChunkedArray:
    """Copies each value once: a view of a value has 16 bytes, and names the buffer that contains it."""
    type = chunks[0].type
    view_type = pa.string_view() if pa.types.is_string(type) else pa.binary_view()
    every = pa.concat_arrays([chunk.cast(view_type) for chunk in chunks])
    buffers = every.buffers()
    views = np.frombuffer(buffers[1], "V16", len(every), every.offset * 16)[positions]
    lengths = views.view(np.uint32)[::4].astype(np.int64)
    valid = np.asarray(every.is_valid())[positions] if every.null_count else None
    if valid is not None:
        lengths *= valid
    ends = np.cumsum(lengths)
    parts = []
    start = 0
    while start < len(views):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + STRING_BYTES_MAX, "right"))
        offsets = np.zeros(stop - start + 1, np.int32)
        offsets[1:] = ends[start:stop] - before
        data = pa.allocate_buffer(int(offsets[-1]))
        content = np.frombuffer(data, np.uint8)
        for first in range(start, stop, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, stop)
            bits = None if valid is None else pa.py_buffer(np.packbits(valid[first:last], bitorder="little"))
            own = [bits, pa.py_buffer(views[first:last]), *buffers[2:]]
            block = pa.Array.from_buffers(view_type, last - first, own).cast(type)
            low, high = int(offsets[first - start]), int(offsets[last - start])
            if high > low:
                content[low:high] = string_parts(block)[1][: high - low]
        bits = None if valid is None else pa.py_buffer(np.packbits(valid[start:stop], bitorder="little"))
        parts.append(pa.Array.from_buffers(type, stop - start, [bits, pa.py_buffer(offsets), data]))
        start = stop
    return parts[0] if len(parts) == 1 else pa.chunked_array(parts, type)
