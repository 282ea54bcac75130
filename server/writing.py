"""What a transaction wrote, on its way to the log: checks, and one payload a table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.log import INLINE_BYTES, Log, Payload
from catalog.objects import ObjectId, Table
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type


def check_not_null(table: Table, rows: pa.Table) -> None:
    """PgError 23502, as PostgreSQL words it, if a NOT NULL column has a NULL. `rows` are c0, c1, ..."""
    for index, column in enumerate(table.columns):
        values = rows.column(index)
        if not column.nullable and values.null_count:
            bad = rows.slice(pc.index(values.is_null(), True).as_py(), 1)
            raise PgError(
                SqlState.NOT_NULL_VIOLATION,
                f'null value in column "{column.name}" of relation "{table.name}" violates not-null constraint',
                detail=f"Failing row contains ({_printed(table, bad)}).",
            )


def _printed(table: Table, row: pa.Table) -> str:
    types = [parse_type(column.type) for column in table.columns]
    encoder = CopyEncoder(types, CopyOptions(null="null", delimiter="\t"))
    line = encoder.encode(row.combine_chunks().to_batches()[0])[5:].decode()
    return ", ".join(line.rstrip("\n").split("\t"))


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """One table for the log: rows if nothing is taken away, else consolidated changes."""
    if all(updates.DIFF not in table.column_names for table in tables):
        return pa.concat_tables(tables)
    changes = [t if updates.DIFF in t.column_names else updates.with_diff(t, 1) for t in tables]
    return updates.consolidate(pa.concat_tables(changes))


async def prepare_payloads(log: Log, writes: Mapping[ObjectId, Sequence[pa.Table]]) -> list[tuple[ObjectId, Payload]]:
    """Payloads for what was written, ready to be named by a transaction."""
    payloads = []
    for id, tables in writes.items():
        table = merged(tables)
        if table.num_rows == 0:
            continue
        # A small payload stays in memory: not worth a thread.
        small = table.nbytes <= INLINE_BYTES
        payloads.append((id, log.prepare(table) if small else await asyncio.to_thread(log.prepare, table)))
    return payloads
