"""The parts of a table that are encoded at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

PART_ROWS = 50_000
PART_BYTES = 32 * 1024 * 1024


def parts(table: pa.Table) -> Iterator[pa.Table]:
    """Consecutive slices of at most PART_ROWS rows, and at most PART_BYTES unless they have one row."""
    for start in range(0, table.num_rows, PART_ROWS):
        yield from _halves(table.slice(start, min(PART_ROWS, table.num_rows - start)))


def _halves(table: pa.Table) -> Iterator[pa.Table]:
    half = table.num_rows // 2
    if half and table.nbytes > PART_BYTES:
        yield from _halves(table.slice(0, half))
        yield from _halves(table.slice(half))
    else:
        yield table
