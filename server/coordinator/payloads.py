"""Payloads of the log for the rows and changes of a transaction, or of the transactions of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from catalog import updates
from catalog.batches import Payload
from catalog.ids import ObjectId
from catalog.layout import Layout
from catalog.log import INLINE_BYTES, Log
from server.coordinator.row_buffer import FEW_BYTES, Inconvertible
from server.runtime.threads import THREAD_ROWS


def few_changes(tables: Sequence[pa.Table]) -> pa.Table | None:
    """The changes of one request to a table, not consolidated, if they may share a payload with those of others.

    None if they are larger than FEW_BYTES. The result keeps little more memory than its size.
    """
    if sum(map(updates.size_of, tables)) > FEW_BYTES and sum(table.nbytes for table in tables) > FEW_BYTES:
        return None
    whole = pa.concat_tables([updates.as_changes(table) for table in tables]).combine_chunks()
    if whole.get_total_buffer_size() > 2 * FEW_BYTES:  # slices of rows that Spark computed for several callers
        return whole.take(pa.array(range(whole.num_rows), pa.int64()))
    return whole


def shared_payloads(log: Log, tables: Sequence[pa.Table], layout: Layout | None = None) -> Iterator[Payload]:
    """Payloads of the `few_changes` of several requests: not many, and none of them a file. Inconvertible."""
    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
        own = updates.size_of(table)
        if gathered and size + own > INLINE_BYTES:
            yield from _shared_payload(log, gathered, layout)
            gathered, size = [], 0
        gathered.append(table)
        size += own
    yield from _shared_payload(log, gathered, layout)


def _shared_payload(log: Log, tables: Sequence[pa.Table], layout: Layout | None) -> Iterator[Payload]:
    try:
        changes = updates.consolidate(pa.concat_tables(tables))
        if changes.num_rows:
            yield log.prepare(changes, layout)
    except pa.ArrowException as error:
        raise Inconvertible from error


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """Combines tables into one for the log: rows if there are no retractions, else consolidated changes."""
    if all(updates.DIFF not in table.column_names for table in tables):
        return pa.concat_tables(tables)
    changes = [t if updates.DIFF in t.column_names else updates.with_diff(t, 1) for t in tables]
    return updates.consolidate(pa.concat_tables(changes))


async def prepare_payloads(
    log: Log,
    writes: Mapping[ObjectId, Sequence[pa.Table]],
    layout_of: Callable[[ObjectId], Layout | None] = lambda _: None,
) -> list[tuple[ObjectId, Payload]]:
    """Returns payloads of the written rows, ready for a transaction of the store. Omits tables without changes."""
    payloads = []
    for id, tables in writes.items():
        many = sum(table.num_rows for table in tables) > THREAD_ROWS
        table = await asyncio.to_thread(merged, tables) if many else merged(tables)
        if table.num_rows == 0:
            continue
        # Preparing a small payload does no IO, so it needs no thread.
        small = table.nbytes <= INLINE_BYTES
        layout = layout_of(id)
        payload = log.prepare(table, layout) if small else await asyncio.to_thread(log.prepare, table, layout)
        payloads.append((id, payload))
    return payloads
