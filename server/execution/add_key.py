"""ALTER TABLE ... ADD of a key, and CREATE UNIQUE INDEX: all rows of the table are checked.

The statement locks the table. The commit fails with 40001 if the table was written in the meantime, and is then tried
again. It makes the key's index known to the committer, so that later commits are checked with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_counts import KeyCounts
from server.coordinator.key_indexes import EnforcedKey, changes_in, counts_of, enforced_keys, first_duplicate, violation
from server.coordinator.key_values import key_tables
from server.execution.ddl import indexes
from server.execution.ddl.define import change_catalog, in_catalog
from server.execution.ddl.keys import check_key_type, check_type, with_keys
from server.execution.names import find_item
from server.execution.own_changes import is_changed
from server.execution.row_rules import contains_nulls
from server.execution.select import relation_rows_at
from server.execution.write import retried
from server.session_state.context import Context
from server.session_state.key_checks import not_unique
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.statements import tables as grammar
from server.sql.grammar.statements.views import CreateIndex
from server.sql.index_keys import index_keys


async def create_unique_index(context: Context, statement: CreateIndex) -> Result:
    """Executes CREATE UNIQUE INDEX."""

    async def attempt(number: int) -> Result:
        if context.transaction.has_effects and not context.transaction.ends_later:
            await context.commit()
        await context.enter(Mode.DEFINE, statement.tag)
        await _create_index(context, statement)
        if not context.transaction.ends_later:
            await context.commit()
        return Result(statement.tag)

    return await retried(context, attempt)


async def _create_index(context: Context, statement: CreateIndex) -> None:
    table = find_item(context, statement.on)
    if not isinstance(table, Table):
        message = f'cannot create unique index on {table.kind} "{table.name}"'
        hint = (
            "Omit UNIQUE: REFRESH MATERIALIZED VIEW CONCURRENTLY needs no unique index."
            if table.relkind == "m"
            else None
        )
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, hint=hint, position=statement.on.position)
    before = context.state
    create = partial(indexes.create, context, statement)
    after = await in_catalog(context, statement.text, create)
    if after is before:
        return
    (id,) = after.items.keys() - before.items.keys()
    index = after.items[id]
    assert isinstance(index, Index)
    for key, given in zip(index_keys(table.columns, index.keys), statement.keys, strict=True):
        if isinstance(key, int):
            check_type(table.columns[key], given.expression.position)
        else:
            check_key_type(key.type, "an expression", given.expression.position)
    (enforced,) = [key for key in enforced_keys(after, table.id) if key.name == index.name]
    await enforce(context, table, enforced, ())
    change_catalog(context, await in_catalog(context, statement.text, create))


async def add_to_table(context: Context, table: Table, key: grammar.Key) -> None:
    """Adds a key to a table. PgError 23505 or 23502 if its rows violate it."""
    before = context.state
    columns, keys = with_keys(before, table.schema_id, table.name, table.columns, [key], table.keys)
    (new,) = [key for key in keys if key not in table.keys]
    after = before.with_item(replace(table, columns=columns, keys=keys))
    if not new.is_enforced and columns == table.columns:
        change_catalog(context, after)
        return
    enforced = next((key for key in enforced_keys(after, table.id) if key.name == new.name), None)
    await enforce(context, table, enforced, [c.name for c, old in zip(columns, table.columns, strict=True) if c != old])
    after = context.state.with_item(replace(table, columns=columns, keys=keys))
    change_catalog(context, after)


async def enforce(context: Context, table: Table, key: EnforcedKey | None, required: Sequence[str]) -> None:
    """Locks a table, checks a new key and new NOT NULL columns with its rows, and keeps the key's rows for the commit.

    PgError 23505 or 23502.
    """
    transaction, coordinator, id = context.transaction, context.coordinator, table.id
    await context.admit((id,))
    await context.lock((id,))
    is_new = id not in coordinator.state.items
    time = context.read_times.hold_latest(frozenset(() if is_new else (id,)))
    if not is_new:
        transaction.depend_on(id, time)
    has_changes = is_changed(context, id)
    rows = await relation_rows_at(context, id, time)
    numbers = {column.name: number for number, column in enumerate(table.columns)}
    for name in required:
        if rows.column(numbers[name]).null_count:
            raise contains_nulls(context, table, name)
    if key is None:
        return
    layout, empty = key.layout, KeyCounts(key.layout.is_narrow)
    (values,) = await key_tables(coordinator.engine, key, [rows])
    changes = await asyncio.to_thread(changes_in, layout, [values])
    if violation(empty, None, changes) is not None:
        found = await asyncio.to_thread(first_duplicate, layout, empty, None, [values])
        assert found is not None
        raise not_unique(context, table, key, values, found[1])
    committed = rows
    if has_changes:
        committed = rows.slice(0, 0) if is_new else await coordinator.reads.rows(id, time, (), table)
    if committed is not rows:
        (values,) = await key_tables(coordinator.engine, key, [committed])
    transaction.new_keys[key.id] = await asyncio.to_thread(counts_of, layout, [values])
    transaction.key_changes.pop(id, None)  # computed again, with the new key
