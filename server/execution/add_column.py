"""ALTER TABLE ... ADD COLUMN: changes the catalog only, unless each row needs a value of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa

from catalog.objects.columns import Column
from catalog.objects.tables import Table
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import parse_type
from server.coordinator.snapshot_cache import collection_schema
from server.execution.add_check import check_all
from server.execution.add_key import add_to_table
from server.execution.altered_columns import has_rows, numbering_of, plan_default_row, replace_table
from server.execution.ddl.checks import with_rules
from server.execution.ddl.columns import COLUMNS_MAX, check_column_name
from server.execution.ddl.define import in_catalog
from server.execution.ddl.sequences import create_owned
from server.execution.planning import plan_default
from server.execution.row_rules import check_rows, contains_nulls
from server.execution.select import rows_without_inputs
from server.execution.user_types import check_domains, known_column
from server.execution.write import apply_rows, rows_to_write
from server.runtime.offload import offload
from server.session_state.context import Context
from server.sql.grammar.statements.alter_table import AddColumn
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.writes import Assignment, Update
from server.sql.row_rules import rules_of
from server.sql.scope import ID_SCHEMA
from server.sql.stored_columns import unchanged
from server.sql.writes.statements import plan_update


async def add_column(context: Context, table: Table, action: AddColumn) -> None:
    """Adds a column to a locked table. Existing rows get the default, or a value of their own."""
    definition = known_column(context, action.column)
    name = definition.name.name
    check_column_name(definition.name)
    if any(column.name == name for column in table.columns):
        message = f'column "{name}" of relation "{table.name}" already exists'
        if not action.if_not_exists:
            raise PgError(SqlState.DUPLICATE_COLUMN, message)
        context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_COLUMN))
        return
    if len(table.columns) >= COLUMNS_MAX:
        raise PgError(SqlState.TOO_MANY_COLUMNS, f"tables can have at most {COLUMNS_MAX} columns")
    column = Column(name, str(definition.type), not definition.not_null, domain=definition.domain)
    check_domains(table.name, (*table.columns, column), table.columns)
    if definition.default is not None:
        planned = partial(plan_default, definition, context.plan_context())
        default, sequences = await in_catalog(context, definition.default.text, planned)
        column = replace(column, default=default, sequences=sequences)
    value = await _initial_value(context, column) if definition.generated is None else None
    if value is not None and not numbering_of(table).accepts(value):
        value = None  # is written to each row, within the limits of UPDATE
    state, identity = context.state, definition.identity
    if identity is not None:
        column, state = create_owned(context, state, table, column, identity)
        value = None
    fills = value is None and await has_rows(context, table)
    if value is None:
        value = pa.scalar(None, parse_type(column.type).arrow)
    if not column.nullable and not value.is_valid and not fills and await has_rows(context, table):
        raise contains_nulls(context, table, name)
    if column.domain is not None and not fills and await has_rows(context, table):
        await _check_domain(context, table, column, value)
    after = replace(table, columns=(*table.columns, column), numbering=numbering_of(table).added(value))
    schema = collection_schema(after)

    def converted(changes: pa.Table) -> pa.Table:
        added = pa.repeat(value.cast(schema.types[-1]), changes.num_rows)
        return changes.add_column(len(table.columns), schema.names[-1], added)

    after = with_rules(context, after, (definition,), action.rules)
    filled = partial(_fill, context, table, column, definition.name) if fills else None
    await replace_table(context, table, after, state=state, change=unchanged, converted=converted, rows=filled)
    for check in after.checks[len(table.checks) :]:
        await check_all(context, after, replace(after, checks=(check,)))
    for key in action.keys:
        added = context.state.items[table.id]
        assert isinstance(added, Table)
        await add_to_table(context, added, key)


async def _check_domain(context: Context, table: Table, column: Column, value: pa.Scalar) -> None:
    """PgError 23502 or 23514 if the value violates a constraint of the column's domain."""
    alone = replace(table, columns=(column,), checks=(), keys=())
    rules = await offload("", rules_of, alone, context.plan_context())
    assert rules is not None
    await check_rows(context, alone, rules, pa.table([pa.repeat(value, 1)], collection_schema(alone)), ())


async def _fill(context: Context, table: Table, column: Column, name: Ident) -> None:
    """Gives each row, which has NULL in the new column, its value. The constraints are checked afterwards.

    `table`: without the column.
    """
    current = context.state.items[table.id]
    assert isinstance(current, Table)
    update = Update("", 0, Name((ID_SCHEMA, table.id), 0), None, (Assignment(name, None),), None, ())
    plan = plan_update(update, context.plan_context())
    rows = await rows_to_write(context, plan.query, (), table.id)
    assert plan.new is not None
    if not column.nullable and rows.column(plan.new.start + len(table.columns)).null_count:
        raise contains_nulls(context, table, column.name)
    await apply_rows(context, replace(plan, rules=None), current, "UPDATE", rows)


async def _initial_value(context: Context, column: Column) -> pa.Scalar | None:
    """The value of a new column in existing rows: its default. None if each row has a value of its own."""
    type = parse_type(column.type).arrow
    if column.effective_default is None:
        return pa.scalar(None, type)
    plan = plan_default_row(context, column).query
    if plan.volatile is not None:
        return None
    row = await rows_without_inputs(context, plan, ())
    return row.column(0)[0].cast(type)
