"""What a transaction sees of its own changes: rows at its read timestamp, with the changes that are not committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.relations import Collection, DerivedRelation
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from server.coordinator.snapshot_cache import collection_schema
from server.dataflow.runtime.spark_rows import shaped
from server.runtime.threads import in_thread
from server.session_state.context import Context
from server.sql.key_conditions import Wanted, selected
from server.sql.plan import QueryPlan
from server.sql.stored_query import plan_stored

LOOP_ROWS_MAX = 256  # more changes are consolidated in a thread
SEARCHED_ROWS_MAX = 16_384  # among more changes, wanted rows are searched in a thread

ComputeRows = Callable[[Context, QueryPlan, Timestamp, tuple[object, ...]], Awaitable[pa.Table]]
"""`rows_at`."""


def is_changed(context: Context, id: ObjectId) -> bool:
    """Whether the transaction has created the relation, or changed a table from which it is computed."""
    transaction = context.transaction
    if transaction.catalog is None and not transaction.has_effects:
        return False
    state = context.state
    if not isinstance(state.items.get(id), Collection | View):
        return False
    committed = context.coordinator.state.items.get(id)
    if committed is None:
        return True
    if isinstance(committed, Table) and committed is not state.items[id]:
        return True
    return not transaction.written.isdisjoint(state.collections((id,), through=DerivedRelation))


async def changed_rows(
    context: Context, id: ObjectId, time: Timestamp, wanted: Wanted, compute: ComputeRows
) -> pa.Table:
    """The rows of a relation that `is_changed`; only the wanted ones. The caller holds `time`."""
    item = context.state.items[id]
    assert isinstance(item, Collection)
    schema = collection_schema(item)
    if isinstance(item, MaterializedView):
        rows = await compute(context, plan_stored(item.query, context.state), time, ())
        return await in_thread(selected, shaped(rows, schema), wanted)
    rows = schema.empty_table()
    if id in context.coordinator.state.items:
        rows = await context.coordinator.reads.rows(id, time, wanted, item)
    transaction = context.transaction
    tables = transaction.visible_tables_of(id)
    if not tables:
        return rows
    if isinstance(item, Table):
        transaction.check_unaltered(item)
    if transaction.statement is None and transaction.must_merge(id):
        transaction.keep_merged(id, await asyncio.to_thread(transaction.merged, id))
        tables = transaction.visible_tables_of(id)
    changed = sum(table.num_rows for table in tables)
    if rows.num_rows <= LOOP_ROWS_MAX and changed <= (SEARCHED_ROWS_MAX if wanted else LOOP_ROWS_MAX):
        changes = _wanted(tables, wanted)
        if changes.num_rows <= LOOP_ROWS_MAX:
            return _applied(rows, changes)
        return await asyncio.to_thread(_applied, rows, changes)
    return await asyncio.to_thread(lambda: _applied(rows, _wanted(tables, wanted)))


def _wanted(tables: Sequence[pa.Table], wanted: Wanted) -> pa.Table:
    return selected(pa.concat_tables([updates.as_changes(table) for table in tables]), wanted)


def _applied(rows: pa.Table, changes: pa.Table) -> pa.Table:
    is_few = rows.num_rows + changes.num_rows <= updates.FEW_ROWS  # `apply` consolidates them
    return updates.apply(rows, changes if is_few else updates.consolidate(changes))
