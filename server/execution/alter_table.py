"""ALTER TABLE of columns and constraints.

The table is locked, so that no other transaction writes it meanwhile. The actions of a statement are applied one after
another, in PostgreSQL's order. Each has a function, in a module of its own if it is long. ADD COLUMN and DROP COLUMN
change the catalog only: stored rows keep their columns, and `catalog.layout` describes how they are read. SET NOT NULL
reads the rows. TYPE replaces the rows: the old ones are retracted and the new ones added at the time of the commit, and
earlier times cannot be read any more.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from catalog.drops import InUse, without_item
from catalog.ids import ObjectId
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.execution.add_check import add_check, validate_check
from server.execution.add_column import add_column
from server.execution.add_key import add_to_table
from server.execution.altered_columns import (
    column_position,
    refuse_computed,
    replace_table,
    with_column,
)
from server.execution.ddl.constraints import drop_constraint
from server.execution.ddl.define import change_catalog, in_catalog
from server.execution.ddl.foreign_keys import with_references
from server.execution.ddl.named_objects import altered_object, in_use
from server.execution.ddl.sequences import alter_owned, create_owned, identity_sequence
from server.execution.drop_column import drop_column
from server.execution.names import find_item
from server.execution.planning import plan_default
from server.execution.row_rules import contains_nulls
from server.execution.set_column_type import set_column_type
from server.execution.write import retried, rows_to_write
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.statements.alter_table import (
    AddCheck,
    AddColumn,
    AddIdentity,
    AddKey,
    AddReference,
    AlterTable,
    DropColumn,
    DropConstraint,
    DropExpression,
    DropIdentity,
    NoEffect,
    SetDefault,
    SetIdentity,
    SetNotNull,
    SetType,
    TableAction,
    ValidateCheck,
)
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.plan import plan_query
from server.sql.stored_query import relation_query


async def alter_table(context: Context, statement: AlterTable) -> Result:
    """Executes ALTER TABLE with actions on columns and constraints."""

    async def attempt(number: int) -> Result:
        result = await _alter(context, statement)
        if not context.transaction.ends_later:
            await context.commit()
        return result

    return await retried(context, attempt)


async def _alter(context: Context, statement: AlterTable) -> Result:
    if context.transaction.has_effects and not context.transaction.ends_later:
        await context.commit()
    await context.enter(Mode.DEFINE, "ALTER TABLE")
    table = _table(context, statement)
    if table is not None:
        await context.lock((table.id,))
        for action in sorted(statement.actions, key=_pass):
            table = _table(context, statement)
            if table is not None:
                await _apply(context, table, action)
                await asyncio.sleep(0)  # many actions must not delay other sessions
    return Result("ALTER TABLE")


def _pass(action: TableAction) -> int:
    """The order of actions is PostgreSQL's: AlterTablePass in its tablecmds.c."""
    match action:
        case DropColumn() | DropConstraint() | SetDefault(default=None) | SetNotNull(not_null=False):
            return 0
        case DropIdentity() | DropExpression():
            return 0
        case SetType():
            return 1
        case AddColumn():
            return 2
        case SetNotNull() | SetIdentity():
            return 3
        case AddKey():
            return 4
        case SetDefault() | AddCheck() | AddReference() | AddIdentity():
            return 5
        case ValidateCheck() | NoEffect():
            return 6


def _table(context: Context, statement: AlterTable) -> Table | None:
    """The table; None if it does not exist and IF EXISTS is given. PgError 42P01, 42501, 42809, 0A000."""
    if not statement.if_exists:
        find_item(context, statement.name)  # PostgreSQL's error names a relation
    found = altered_object(context, statement)
    if found is None:
        return None
    if not isinstance(found, Table):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'the columns of {found.kind} "{found.name}" cannot be altered',
            hint="A source determines them. Create a view that has the wanted columns.",
        )
    privileges.require_owner(context.state, context.role, found)
    return found


async def _apply(context: Context, table: Table, action: TableAction) -> None:
    match action:
        case AddColumn():
            await add_column(context, table, action)
        case DropColumn():
            await drop_column(context, table, action)
        case SetDefault(column=name, default=default):
            at = column_position(table, name)
            column, text = table.columns[at], None
            sequences: tuple[ObjectId, ...] = ()
            refuse_computed(table, column)
            if default is not None:
                definition = ColumnDefinition(name, parse_type(column.type), False, default, domain=column.domain)
                planned = partial(plan_default, definition, context.plan_context())
                text, sequences = await in_catalog(context, default.text, planned)
            await replace_table(
                context, table, with_column(table, at, replace(column, default=text, sequences=sequences))
            )
        case SetNotNull(column=name, not_null=wanted):
            await _set_not_null(context, table, name, wanted)
        case SetType():
            await set_column_type(context, table, action)
        case AddIdentity() | SetIdentity() | DropIdentity():
            await _change_identity(context, table, action)
        case DropExpression():
            await _drop_expression(context, table, action)
        case AddKey(key=key):
            await add_to_table(context, table, key)
        case AddCheck(check=check):
            await add_check(context, table, check)
        case AddReference(reference=reference):
            change_catalog(context, context.state.with_item(with_references(context, table, (reference,))))
        case ValidateCheck(name=name):
            await validate_check(context, table, name.name)
        case DropConstraint():
            change_catalog(context, drop_constraint(context, table, action))
        case NoEffect():
            _check_named(context, table, action)


def _check_named(context: Context, table: Table, action: NoEffect) -> None:
    """PgError 42703 or 42704 if the table does not have what the action names."""
    if action.name is None:
        return
    name = action.name.name
    if action.kind == "column":
        column_position(table, action.name)
        return
    indexes = {index.name for index in context.state.items_of(Index) if index.on == table.id}
    if action.kind == "index" and name in indexes.union(key.name for key in table.keys):
        return
    whose = "relation" if action.kind == "rule" else "table"
    message = f'{action.kind} "{name}" for {whose} "{table.name}" does not exist'
    raise PgError(SqlState.UNDEFINED_OBJECT, message)


async def _change_identity(context: Context, table: Table, action: AddIdentity | SetIdentity | DropIdentity) -> None:
    """ADD GENERATED, SET GENERATED and other options, DROP IDENTITY. PgError 42703, 55000, 22023."""
    at = column_position(table, action.column)
    column, state = table.columns[at], context.state
    what = f'column "{column.name}" of relation "{table.name}"'
    if isinstance(action, AddIdentity):
        added, state = create_owned(context, state, table, column, action.identity)
        problem = None
        if column.nullable:
            problem = "must be declared NOT NULL before identity can be added"
        elif column.identity:
            problem = "is already an identity column"
        elif column.default is not None or column.generated:
            problem = "already has a default value"
        if problem is not None:
            raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, f"{what} {problem}")
        await replace_table(context, table, with_column(table, at, added), state=state)
        return
    if not column.identity:
        message = f"{what} is not an identity column"
        if isinstance(action, DropIdentity) and action.if_exists:
            context.notice(Notice(f"{message}, skipping"))
            return
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    sequence = identity_sequence(state, table, column.name)
    if isinstance(action, SetIdentity):
        state = alter_owned(context, state, sequence, action.options)
        if action.always is not None:
            column = replace(column, identity="a" if action.always else "d")
        await replace_table(context, table, with_column(table, at, column), state=state)
        return
    after = with_column(table, at, replace(column, default=None, identity="", sequences=()))
    try:
        state = without_item(state.with_item(after), sequence.id, cascade=False)
    except InUse as error:
        raise in_use(error) from None
    await replace_table(context, table, after, state=state)


async def _drop_expression(context: Context, table: Table, action: DropExpression) -> None:
    """The column keeps its values. PgError 42703, 55000."""
    at = column_position(table, action.column)
    column = table.columns[at]
    if column.generated:
        await replace_table(context, table, with_column(table, at, replace(column, generated="")))
        return
    message = f'column "{column.name}" of relation "{table.name}" is not a stored generated column'
    if not action.if_exists:
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    context.notice(Notice(f"{message}, skipping"))


async def _set_not_null(context: Context, table: Table, name: Ident, wanted: bool) -> None:
    at = column_position(table, name)
    column = table.columns[at]
    if column.nullable is not wanted:
        return
    if not wanted and any(key.is_primary and column.name in key.columns for key in table.keys):
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, f'column "{column.name}" is in a primary key')
    if not wanted and column.identity:
        message = f'column "{column.name}" of relation "{table.name}" is an identity column'
        raise PgError(SqlState.SYNTAX_ERROR, message)
    if wanted:
        plan = plan_query(relation_query(table, (column.name,)), context.plan_context())
        rows = await rows_to_write(context, plan, (), table.id)
        if rows.column(0).null_count:
            raise contains_nulls(context, table, column.name)
    await replace_table(context, table, with_column(table, at, replace(column, nullable=not wanted)))
