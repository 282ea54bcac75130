"""ALTER TABLE of columns and constraints.

The table is locked, so that no other transaction writes it meanwhile. Adding and dropping columns changes the
catalog only: stored rows keep their columns, and `catalog.layout` describes how they are read. SET NOT NULL reads the
rows. TYPE replaces the rows: the old ones are retracted and the new ones added at the time of the commit, and earlier
times cannot be read any more. The actions of a statement are applied one after another, in PostgreSQL's order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pyarrow as pa

from catalog import updates
from catalog.layout import NOW, Numbering
from catalog.objects import (
    Column,
    DerivedRelation,
    Item,
    MaterializedView,
    ObjectId,
    Relation,
    Sequence,
    Sink,
    Table,
)
from catalog.state import CatalogState, InUse
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.authorization import privileges
from server.coordinator.key_indexes import enforced_keys
from server.coordinator.snapshot_cache import collection_schema, layout_of
from server.dataflow.runtime.spark_rows import shaped
from server.execution.add_check import add_check, check_all, validate_check
from server.execution.add_key import add_to_table, enforce
from server.execution.ddl.checks import with_rules
from server.execution.ddl.columns import COLUMNS_MAX, NO_COLUMNS_HINT
from server.execution.ddl.constraints import drop_constraint
from server.execution.ddl.define import change_catalog, in_catalog
from server.execution.ddl.drop import report_cascade
from server.execution.ddl.foreign_keys import check_types, referenced_column_users, with_references
from server.execution.ddl.index_options import check_classes
from server.execution.ddl.named_objects import altered_object, in_use
from server.execution.ddl.sequences import alter_owned, create_owned, identity_sequence
from server.execution.ddl.view_columns import with_views
from server.execution.names import find_item
from server.execution.planning import default_values, plan_default, refuse_subquery
from server.execution.row_rules import check_rows
from server.execution.select import relation_rows_at, rows_without_inputs
from server.execution.user_types import known_column
from server.execution.write import apply_rows, retried, rows_to_write
from server.runtime.threads import in_thread
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.lexer import quote_identifier, quoted
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.alter_table import (
    AddCheck,
    AddColumn,
    AddIdentity,
    AddKey,
    AddReference,
    AlterTable,
    DropColumn,
    DropConstraint,
    DropIdentity,
    SetDefault,
    SetIdentity,
    SetNotNull,
    SetType,
    TableAction,
    ValidateCheck,
)
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.grammar.statements.writes import Assignment, Insert, Update
from server.sql.index_keys import index_condition, index_keys
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.row_rules import rules_of
from server.sql.scope import ID_SCHEMA
from server.sql.stored_columns import Change, columns_used, dropped, key_columns, unchanged
from server.sql.stored_query import relation_query
from server.sql.write_plan import WritePlan, plan_insert, plan_update

_NEW = ObjectId("new")
_TEXTS = ("text", "varchar")


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
        case DropColumn() | DropConstraint() | DropIdentity() | SetDefault(default=None) | SetNotNull(not_null=False):
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
        case ValidateCheck():
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
            await _add_column(context, table, action)
        case DropColumn():
            await _drop_column(context, table, action)
        case SetDefault(column=name, default=default):
            at = _position(table, name)
            column, text = table.columns[at], None
            sequences: tuple[ObjectId, ...] = ()
            _refuse_computed(table, column)
            if default is not None:
                text, sequences = plan_default(
                    ColumnDefinition(name, parse_type(column.type), False, default), context.plan_context()
                )
            await _replace(context, table, _with_column(table, at, replace(column, default=text, sequences=sequences)))
        case SetNotNull(column=name, not_null=wanted):
            await _set_not_null(context, table, name, wanted)
        case SetType():
            await _set_type(context, table, action)
        case AddIdentity() | SetIdentity() | DropIdentity():
            await _change_identity(context, table, action)
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


def _position(table: Relation, name: Ident) -> int:
    """The position of a column. PgError 42703."""
    for at, column in enumerate(table.columns):
        if column.name == name.name:
            return at
    message = f'column "{name.name}" of relation "{table.name}" does not exist'
    raise PgError(SqlState.UNDEFINED_COLUMN, message)


def _with_column(table: Table, at: int, column: Column) -> Table:
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1 :]))


def _numbering(table: Table) -> Numbering:
    return table.numbering or Numbering.initial(len(table.columns))


async def _replace(
    context: Context,
    before: Table,
    after: Table,
    *,
    state: CatalogState | None = None,
    change: Change | None = None,
    converted: Callable[[pa.Table], pa.Table] | None = None,
    rows: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Makes `after` the definition of a table in the transaction's catalog.

    `state`: the catalog, if it is not the session's. `change`: of the columns in the queries of views.
    `converted`: converts the transaction's own changes of the table. `rows`: changes the rows. Keys on columns whose
    position or type has changed are checked with all rows.
    """

    def derived() -> CatalogState:
        derived = (state or context.state).with_item(after)
        if change is not None:
            derived = with_views(derived, before, change)
        return _with_nulls(derived, after.id)

    next_state = await in_catalog(context, "", derived)
    known = {key.id for key in enforced_keys(context.state, after.id)}
    if converted is not None:
        context.transaction.convert(after.id, converted, layout_of(after))
    change_catalog(context, next_state)
    if rows is not None:
        await rows()
    for key in enforced_keys(next_state, after.id):
        if key.id not in known:
            await enforce(context, after, key, ())


def _with_nulls(state: CatalogState, id: ObjectId) -> CatalogState:
    """The state in which the columns of all views over a relation are nullable as their queries say."""
    views = [item for item in state.dependents(id) if isinstance(item, DerivedRelation)]
    while True:
        before = state
        for view in views:
            old = state.items[view.id]
            assert isinstance(old, DerivedRelation)
            fields = _plan(state, old).columns
            columns = tuple(replace(c, nullable=f.nullable) for c, f in zip(old.columns, fields, strict=True))
            if columns != old.columns:
                state = state.with_item(replace(old, columns=columns))
        if state is before:
            return state


def _plan(state: CatalogState, view: DerivedRelation) -> QueryPlan:
    maintained = isinstance(view, MaterializedView)
    return plan_query(parse_query(view.query), PlanContext(state, "", (), ""), None, maintained=maintained)


# -- ADD COLUMN -----------------------------------------------------------------------------------------------------


async def _add_column(context: Context, table: Table, action: AddColumn) -> None:
    definition = known_column(context, action.column)
    name = definition.name.name
    if any(column.name == name for column in table.columns):
        message = f'column "{name}" of relation "{table.name}" already exists'
        if not action.if_not_exists:
            raise PgError(SqlState.DUPLICATE_COLUMN, message)
        context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_COLUMN))
        return
    if len(table.columns) >= COLUMNS_MAX:
        raise PgError(SqlState.TOO_MANY_COLUMNS, f"tables can have at most {COLUMNS_MAX} columns")
    column = Column(name, str(definition.type), not definition.not_null, domain=definition.domain)
    if definition.default is not None:
        default, sequences = plan_default(definition, context.plan_context())
        column = replace(column, default=default, sequences=sequences)
    value = await _initial_value(context, column) if definition.generated is None else None
    state, identity = context.state, definition.identity
    if identity is not None:
        column, state = create_owned(context, state, table, column, identity)
        value = None
    fills = value is None and await _has_rows(context, table)
    if value is None:
        value = pa.scalar(None, parse_type(column.type).arrow)
    if not column.nullable and not value.is_valid and not fills and await _has_rows(context, table):
        raise _contains_nulls(table, name)
    if column.domain is not None and not fills and await _has_rows(context, table):
        alone = replace(table, columns=(column,), checks=(), keys=())
        rules = rules_of(alone, context.plan_context())
        assert rules is not None
        await check_rows(context, alone, rules, pa.table([pa.repeat(value, 1)], collection_schema(alone)), ())
    after = replace(table, columns=(*table.columns, column), numbering=_numbering(table).added(value))
    schema = collection_schema(after)

    def converted(changes: pa.Table) -> pa.Table:
        added = pa.repeat(value.cast(schema.types[-1]), changes.num_rows)
        return changes.add_column(len(table.columns), schema.names[-1], added)

    async def filled() -> None:
        """Gives each row, which has NULL in the new column, its value. The constraints are checked afterwards."""
        current = context.state.items[table.id]
        assert isinstance(current, Table)
        update = Update("", 0, Name((ID_SCHEMA, table.id), 0), None, (Assignment(definition.name, None),), None, ())
        plan = plan_update(update, context.plan_context())
        rows = await rows_to_write(context, plan.query, (), table.id)
        assert plan.new is not None
        if not column.nullable and rows.column(plan.new.start + len(table.columns)).null_count:
            raise _contains_nulls(table, name)
        await apply_rows(context, replace(plan, rules=None), current, "UPDATE", rows)

    after = with_rules(context, after, (definition,), action.rules)
    await _replace(
        context, table, after, state=state, change=unchanged, converted=converted, rows=filled if fills else None
    )
    for check in after.checks[len(table.checks) :]:
        await check_all(context, after, replace(after, checks=(check,)))
    for key in action.keys:
        added = context.state.items[table.id]
        assert isinstance(added, Table)
        await add_to_table(context, added, key)


async def _initial_value(context: Context, column: Column) -> pa.Scalar | None:
    """The value of a new column in existing rows: its default. None if each row has a value of its own."""
    type = parse_type(column.type).arrow
    if column.effective_default is None:
        return pa.scalar(None, type)
    plan = _plan_default_row(context, column).query
    if plan.volatile is not None:
        return None
    row = await rows_without_inputs(context, plan, ())
    return row.column(0)[0].cast(type)


def _plan_default_row(context: Context, column: Column) -> WritePlan:
    """An INSERT of a default row into a table that has only the column."""
    plan_context = context.plan_context()
    state = plan_context.state
    table = Table(_NEW, next(iter(state.schemas)), "", (column,))
    state = replace(state, items={**state.items, _NEW: table})
    return plan_insert(default_values(table), replace(plan_context, state=state))


async def _has_rows(context: Context, table: Table) -> bool:
    plan = plan_query(relation_query(table, (table.columns[0].name,)), context.plan_context())
    rows = await rows_to_write(context, plan, (), table.id)
    return bool(rows.num_rows)


def _contains_nulls(table: Table, column: str) -> PgError:
    return PgError(SqlState.NOT_NULL_VIOLATION, f'column "{column}" of relation "{table.name}" contains null values')


# -- DROP COLUMN ----------------------------------------------------------------------------------------------------


async def _drop_column(context: Context, table: Table, action: DropColumn) -> None:
    """Drops a column, and with CASCADE what depends on it, also generated columns of the table."""
    name = action.column.name
    if action.if_exists and all(column.name != name for column in table.columns):
        context.notice(Notice(f'column "{name}" of relation "{table.name}" does not exist, skipping'))
        return
    at = _position(table, action.column)
    if len(table.columns) == 1:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "tables without columns are not supported", hint=NO_COLUMNS_HINT)
    computed = [c.name for c in table.columns if c.generated and name in key_columns(c.generated)]
    if computed and action.cascade:
        for other in computed:
            context.notice(Notice(f"drop cascades to column {other} of table {table.name}"))
            left = context.state.items[table.id]
            assert isinstance(left, Table)
            await _drop_column(context, left, DropColumn(Ident(other, action.column.position), False, True))
        left = context.state.items[table.id]
        assert isinstance(left, Table)
        await _drop_column(context, left, action)
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

    await _replace(context, altered, after, state=state, change=dropped(altered.columns[at]), converted=converted)


async def _without_dependents(context: Context, table: Table, name: str, *, cascade: bool) -> CatalogState:
    """The catalog without the views, sinks, foreign keys and indexes that depend on a column.

    PgError 2BP01 if there are any but indexes, unless `cascade`; notices name them then.
    """
    state = before = context.state
    users = await in_catalog(context, "", lambda: _users(before, table, name))
    if (users or referenced_column_users(state, table.id, name)) and not cascade:
        raise _depended_on(state, table, name, users)
    for user in users:
        if user.id in state.items:
            state = state.without_item(user.id, cascade=True)
    for index in state.indexes_on(table.id):
        if any(name in key_columns(key) for key in (*index.keys, *index.included, index.condition) if key):
            try:
                state = state.without_item(index.id, cascade=cascade)
            except InUse as error:
                raise in_use(error) from None
    indexes = {index.id for index in before.indexes_on(table.id)}
    gone = [item for id, item in before.items.items() if id not in state.items and id not in indexes]
    state = state.without_references(referenced_column_users(state, table.id, name))
    report_cascade(context, gone, before, state)
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
        numbering=_numbering(table).dropped(at),
    )


def _without_sequences(state: CatalogState, table: Table, name: str, *, cascade: bool) -> CatalogState:
    """The catalog without the sequences that a column owns. PgError 2BP01 if something uses them, unless `cascade`."""
    for sequence in [*state.items_of(Sequence)]:
        if sequence.owner_table == table.id and sequence.owner_column == name:
            try:
                state = state.without_item(sequence.id, cascade=cascade)
            except InUse as error:
                raise in_use(error) from None
    return state


def _users(state: CatalogState, table: Table, column: str) -> list[Item]:
    """The views and sinks that depend on a column of a table."""
    users: list[Item] = []
    for item in state.items.values():
        if isinstance(item, DerivedRelation) and table.id in item.uses:
            if column in columns_used(_plan(state, item), table.id):
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


# -- IDENTITY -------------------------------------------------------------------------------------------------------


async def _change_identity(context: Context, table: Table, action: AddIdentity | SetIdentity | DropIdentity) -> None:
    """ADD GENERATED, SET GENERATED and other options, DROP IDENTITY. PgError 42703, 55000, 22023."""
    at = _position(table, action.column)
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
        await _replace(context, table, _with_column(table, at, added), state=state)
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
        await _replace(context, table, _with_column(table, at, column), state=state)
        return
    after = _with_column(table, at, replace(column, default=None, identity="", sequences=()))
    try:
        state = state.with_item(after).without_item(sequence.id, cascade=False)
    except InUse as error:
        raise in_use(error) from None
    await _replace(context, table, after, state=state)


# -- SET NOT NULL ---------------------------------------------------------------------------------------------------


async def _set_not_null(context: Context, table: Table, name: Ident, wanted: bool) -> None:
    at = _position(table, name)
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
            raise _contains_nulls(table, column.name)
    await _replace(context, table, _with_column(table, at, replace(column, nullable=not wanted)))


# -- TYPE -----------------------------------------------------------------------------------------------------------


async def _set_type(context: Context, table: Table, action: SetType) -> None:
    at = _position(table, action.column)
    column, type = table.columns[at], _plain_type(context, action.type)
    action = replace(action, type=type)
    await in_catalog(context, "", lambda: _refuse_users(context.state, table, column.name))
    _refuse_computed(table, column)
    for computed in table.columns:
        if computed.generated and column.name in key_columns(computed.generated):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a generated column",
                detail=f'Column "{column.name}" is used by generated column "{computed.name}".',
                hint="Drop the generated column first.",
            )
    for check in table.checks:
        if column.name in key_columns(check.expression):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a check constraint",
                detail=f'constraint "{check.name}" uses column "{column.name}"',
                hint="Drop the constraint, and add it again afterwards.",
            )
    new = replace(column, type=str(type), domain=None)
    if column.default is not None:
        _check_default(context, new)
    after = _with_column(table, at, new)
    for index in context.state.indexes_on(table.id):
        index_keys(after.columns, index.keys)
        index_condition(after.columns, index.condition)
        check_classes(after.columns, index.keys, index.classes, index.method)
    check_types(context.state, after)
    if action.using is None and _is_wider(parse_type(column.type), type):
        await _replace(context, table, after)
        return
    rows = await rows_to_write(context, _plan_conversion(context, table, after, at, action), (), table.id)
    rows = await in_thread(shaped, rows, collection_schema(after))
    if not column.nullable and rows.column(at).null_count:
        raise _contains_nulls(table, column.name)
    null = pa.scalar(None, type.arrow)
    numbering = replace(_numbering(table).added(null, at), readable_from=NOW)
    after = replace(after, numbering=numbering)

    def converted(changes: pa.Table) -> pa.Table:
        return changes.set_column(at, f"c{at}", pa.repeat(null, changes.num_rows))

    async def replaced() -> None:
        """Retracts the old rows, which have NULL in the new column, and adds the new ones."""
        time = context.transaction.read_time or context.coordinator.latest_time()
        holder = context.coordinator.frontiers.hold((table.id,), time)
        try:
            old = await relation_rows_at(context, table.id, time)
        finally:
            holder.release()
        if old.num_rows:
            await context.add_changes(after, [updates.with_diff(old, -1), rows])

    await _replace(context, table, after, converted=converted, rows=replaced)


def _plain_type(context: Context, type: PgType) -> PgType:
    """The type that a statement names. PgError 0A000 for a domain."""
    found = known_column(context, ColumnDefinition(Ident("", 0), type, False, None))
    if found.domain is not None:
        message = f"changing the type of a column to domain {found.domain.name} is not supported"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Add a column of the domain, and copy the values.")
    return found.type


def _refuse_computed(table: Table, column: Column) -> None:
    """PgError 42601 for the default or type of an identity column, 0A000 or 42601 for those of a generated one."""
    if column.identity:
        message = f'column "{column.name}" of relation "{table.name}" is an identity column'
        raise PgError(SqlState.SYNTAX_ERROR, message)
    if column.generated:
        message = f'column "{column.name}" of relation "{table.name}" is a generated column'
        raise PgError(SqlState.SYNTAX_ERROR, message)


def _refuse_users(state: CatalogState, table: Table, column: str) -> None:
    """PgError 0A000 if a view, materialized view or sink has the column."""
    for item in state.items.values():
        if isinstance(item, DerivedRelation) and table.id in item.uses:
            if column in columns_used(_plan(state, item), table.id):
                raise PgError(
                    SqlState.FEATURE_NOT_SUPPORTED,
                    "cannot alter type of a column used by a view or rule",
                    detail=f'rule _RETURN on {item.kind} {item.name} depends on column "{column}"',
                    hint=f"Drop the {item.kind}, and create it again afterwards.",
                )
        elif isinstance(item, Sink) and item.on == table.id:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a sink",
                detail=f'sink {item.name} writes column "{column}"',
                hint="Drop the sink, and create it again afterwards.",
            )


def _check_default(context: Context, column: Column) -> None:
    """PgError 42804 if the default of a column cannot be assigned to its type."""
    try:
        _plan_default_row(context, column)
    except PgError as error:
        if error.sqlstate is not SqlState.DATATYPE_MISMATCH:
            raise
        display = parse_type(column.type).base_display
        message = f'default for column "{column.name}" cannot be cast automatically to type {display}'
        raise PgError(SqlState.DATATYPE_MISMATCH, message) from None


def _is_wider(old: PgType, new: PgType) -> bool:
    """Whether each value of the old type is one of the new type and stored in the same way."""
    if old == new:
        return True
    is_text = old.name in _TEXTS and new.name in _TEXTS
    return is_text and (new.length is None or (old.length is not None and old.length <= new.length))


def _plan_conversion(context: Context, table: Table, after: Table, at: int, action: SetType) -> QueryPlan:
    """The rows of a table after the type of a column changes. PgError 42804 without a cast."""
    values = [quote_identifier(column.name) for column in table.columns]
    if action.using is not None:
        refuse_subquery(action.using, "transform expression")
        values[at] = f"({action.using.text})"
    relation = f"{quoted(ID_SCHEMA)}.{quoted(table.id)} AS {quoted(table.name)}"
    plan_context = context.plan_context()
    plain = replace(after, id=_NEW, columns=tuple(replace(c.without_default(), generated="") for c in after.columns))
    state = replace(plan_context.state, items={**plan_context.state.items, _NEW: plain})
    source = parse_query(f"SELECT {', '.join(values)} FROM {relation}")
    insert = Insert("", 0, Name((ID_SCHEMA, _NEW), 0), None, (), source, ())
    try:
        return plan_insert(insert, replace(plan_context, state=state)).query
    except PgError as error:
        if error.sqlstate is not SqlState.DATATYPE_MISMATCH or "is of type" not in error.message:
            error.position = None
            raise
        name, display = action.column.name, action.type.base_display
        if action.using is not None:
            message = f'result of USING clause for column "{name}" cannot be cast automatically to type {display}'
            raise PgError(SqlState.DATATYPE_MISMATCH, message, hint="You might need to add an explicit cast.") from None
        hint = f'You might need to specify "USING {quote_identifier(name)}::{action.type.display}".'
        message = f'column "{name}" cannot be cast automatically to type {display}'
        raise PgError(SqlState.DATATYPE_MISMATCH, message, hint=hint) from None
