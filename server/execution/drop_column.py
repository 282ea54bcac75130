"""ALTER TABLE ... DROP COLUMN: changes the catalog only, and with CASCADE drops what depends on the column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from catalog.drops import InUse, without_item, without_items
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.relations import DerivedRelation
from catalog.objects.sequences import Sequence
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.references import without_references
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.coordinator.snapshot_cache import collection_schema
from server.execution.altered_columns import column_position, numbering_of, plan_of_view, replace_table
from server.execution.ddl.columns import NO_COLUMNS_HINT
from server.execution.ddl.define import in_catalog
from server.execution.ddl.drop import report_cascade
from server.execution.ddl.foreign_keys import referenced_column_users
from server.execution.ddl.named_objects import in_use
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.alter_table import (
    DropColumn,
)
from server.sql.grammar.statements.parts import Ident
from server.sql.stored_columns import columns_used, dropped, key_columns


async def drop_column(context: Context, table: Table, action: DropColumn) -> None:
    """Drops a column, and with CASCADE what depends on it, also generated columns of the table."""
    name = action.column.name
    if action.if_exists and all(column.name != name for column in table.columns):
        context.notice(Notice(f'column "{name}" of relation "{table.name}" does not exist, skipping'))
        return
    at = column_position(table, action.column)
    if len(table.columns) == 1:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "tables without columns are not supported", hint=NO_COLUMNS_HINT)
    computed = [c.name for c in table.columns if c.generated and name in key_columns(c.generated)]
    if computed and action.cascade:
        for other in computed:
            context.notice(Notice(f"drop cascades to column {other} of table {table.name}"))
            left = context.state.items[table.id]
            assert isinstance(left, Table)
            await drop_column(context, left, DropColumn(Ident(other, action.column.position), False, True))
        left = context.state.items[table.id]
        assert isinstance(left, Table)
        await drop_column(context, left, action)
        return
    if computed:
        whole = f"of table {table.name}"
        raise PgError(
            SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
            f"cannot drop column {name} {whole} because other objects depend on it",
            detail="\n".join(f"column {other} {whole} depends on column {name} {whole}" for other in computed),
            hint="Use DROP ... CASCADE to drop the dependent objects too.",
        )
    state = await _without_dependents(context, table, name, cascade=action.cascade)
    altered = state.items[table.id]
    assert isinstance(altered, Table)
    after = _without_column(altered, at)
    state = _without_sequences(state.with_item(after), table, name, cascade=action.cascade)
    state = state.without_column(table.id, at + 1)
    names = collection_schema(altered).names

    def converted(changes: pa.Table) -> pa.Table:
        left = changes.remove_column(at)
        return left.rename_columns([*names[:-1], *left.column_names[len(names) - 1 :]])

    await replace_table(context, altered, after, state=state, change=dropped(altered.columns[at]), converted=converted)


async def _without_dependents(context: Context, table: Table, name: str, *, cascade: bool) -> CatalogState:
    """The catalog without the views, sinks, foreign keys and indexes that depend on a column.

    PgError 2BP01 if there are any but indexes, unless `cascade`; notices name them then.
    """
    before = context.state
    users = await in_catalog(context, "", lambda: _users(before, table, name))
    if (users or referenced_column_users(before, table.id, name)) and not cascade:
        raise _depended_on(before, table, name, users)
    without_users = without_items(before, [user.id for user in users])
    state = await in_catalog(context, "", lambda: _without_indexes(without_users, table, name, cascade=cascade))
    indexes = {index.id for index in before.indexes_on(table.id)}
    gone = [item for id, item in before.items.items() if id not in state.items and id not in indexes]
    state = without_references(state, referenced_column_users(state, table.id, name))
    report_cascade(context, gone, before, state)
    return state


def _without_indexes(state: CatalogState, table: Table, name: str, *, cascade: bool) -> CatalogState:
    """The catalog without a table's indexes on a column. PgError 2BP01 if one is used, unless `cascade`."""
    gone: list[ObjectId] = []
    for index in state.indexes_on(table.id):
        checkpoint()
        if any(name in key_columns(key) for key in (*index.keys, *index.included, index.condition) if key):
            gone.append(index.id)
    if cascade:
        return without_items(state, gone)
    for id in gone:
        checkpoint()
        try:
            state = without_item(state, id)
        except InUse as error:
            raise in_use(error) from None
    return state


def _without_column(table: Table, at: int) -> Table:
    """The table without a column and without its own constraints on the column."""
    name = table.columns[at].name
    return replace(
        table,
        columns=(*table.columns[:at], *table.columns[at + 1 :]),
        keys=tuple(key for key in table.keys if name not in key.columns),
        checks=tuple(check for check in table.checks if name not in key_columns(check.expression)),
        foreign_keys=tuple(key for key in table.foreign_keys if name not in key.columns),
        numbering=numbering_of(table).dropped(at),
    )


def _without_sequences(state: CatalogState, table: Table, name: str, *, cascade: bool) -> CatalogState:
    """The catalog without the sequences that a column owns. PgError 2BP01 if something uses them, unless `cascade`."""
    for sequence in [*state.items_of(Sequence)]:
        if sequence.owner_table == table.id and sequence.owner_column == name:
            try:
                state = without_item(state, sequence.id, cascade=cascade)
            except InUse as error:
                raise in_use(error) from None
    return state


def _users(state: CatalogState, table: Table, column: str) -> list[Item]:
    """The views and sinks that depend on a column of a table."""
    users: list[Item] = []
    for item in state.items.values():
        if isinstance(item, DerivedRelation) and table.id in item.uses:
            if column in columns_used(plan_of_view(state, item), table.id):
                users.append(item)
        elif isinstance(item, Sink) and item.on == table.id and column in item.key:
            users.append(item)
    return users


def _depended_on(state: CatalogState, table: Table, column: str, users: list[Item]) -> PgError:
    lines = [f"{user.kind} {user.name} depends on column {column} of table {table.name}" for user in users]
    for user in users:
        lines += [
            f"{item.kind} {item.name} depends on {user.kind} {user.name}"
            for item in state.dependents(user.id)
            if item.part_of is None
        ]
    for owner, key in referenced_column_users(state, table.id, column):
        lines.append(f"constraint {key.name} on table {owner.name} depends on column {column} of table {table.name}")
    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        f"cannot drop column {column} of table {table.name} because other objects depend on it",
        detail="\n".join(lines),
        hint="Use DROP ... CASCADE to drop the dependent objects too.",
    )
