"""Payloads of the log for the rows and changes of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa

from catalog import updates
from catalog.log import INLINE_BYTES, Log, Payload
from catalog.objects import ObjectId
from server.runtime.threads import THREAD_ROWS


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
        many = sum(table.num_rows for table in tables) > THREAD_ROWS
        table = await asyncio.to_thread(merged, tables) if many else merged(tables)
        if table.num_rows == 0:
            continue
        # Preparing a small payload does no IO, so it needs no thread.
        small = table.nbytes <= INLINE_BYTES
        payloads.append((id, log.prepare(table) if small else await asyncio.to_thread(log.prepare, table)))
    return payloads
