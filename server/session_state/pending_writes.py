"""Prepares a transaction's writes for the log: checks constraints, and makes one payload per table."""

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
    """PgError 23502, in PostgreSQL's words, if a NOT NULL column has a NULL. The columns of `rows` are c0, c1, ..."""
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
    """Combines tables into one for the log: rows if there are no retractions, else consolidated changes."""
    if all(updates.DIFF not in table.column_names for table in tables):
        return pa.concat_tables(tables)
    changes = [t if updates.DIFF in t.column_names else updates.with_diff(t, 1) for t in tables]
    return updates.consolidate(pa.concat_tables(changes))


async def prepare_payloads(log: Log, writes: Mapping[ObjectId, Sequence[pa.Table]]) -> list[tuple[ObjectId, Payload]]:
    """Returns payloads of the written rows, ready for a transaction of the store. Omits tables without changes."""
    payloads = []
    for id, tables in writes.items():
        table = merged(tables)
        if table.num_rows == 0:
            continue
        # Preparing a small payload does no IO, so it needs no thread.
        small = table.nbytes <= INLINE_BYTES
        payloads.append((id, log.prepare(table) if small else await asyncio.to_thread(log.prepare, table)))
    return payloads
