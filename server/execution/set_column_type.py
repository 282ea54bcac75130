"""ALTER TABLE ... ALTER COLUMN ... TYPE: replaces the rows, unless each stored value is one of the new type, too."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from catalog import updates
from catalog.layout import NOW
from catalog.objects.columns import Column
from catalog.objects.relations import DerivedRelation
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.coordinator.snapshot_cache import collection_schema
from server.dataflow.runtime.spark_rows import shaped
from server.execution.altered_columns import (
    NEW,
    column_position,
    numbering_of,
    plan_default_row,
    plan_of_view,
    refuse_computed,
    replace_table,
    with_column,
)
from server.execution.ddl.define import in_catalog
from server.execution.ddl.foreign_keys import check_types
from server.execution.ddl.index_options import check_classes
from server.execution.ddl.sequences import set_identity_type
from server.execution.planning import refuse_subquery
from server.execution.row_rules import contains_nulls, first_violation, violated_by_some_row
from server.execution.select import relation_rows_at
from server.execution.user_types import known_column
from server.execution.write import rows_to_write
from server.runtime.threads import in_thread
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier, quoted
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.alter_table import (
    SetType,
)
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.grammar.statements.writes import Insert
from server.sql.index_keys import index_condition, index_keys
from server.sql.plan import QueryPlan
from server.sql.row_rules import RowRules, rules_of
from server.sql.scope import ID_SCHEMA
from server.sql.stored_columns import columns_used, key_columns
from server.sql.writes.statements import plan_insert

_TEXTS = ("text", "varchar")


async def set_column_type(context: Context, table: Table, action: SetType) -> None:
    """Changes the type of a column of a locked table. The values are those of USING, or of an assignment cast."""
    at = column_position(table, action.column)
    column, type = table.columns[at], _plain_type(context, action.type)
    action = replace(action, type=type)
    await in_catalog(context, "", lambda: _refuse_users(context.state, table, column.name))
    if column.identity:
        state = set_identity_type(context, context.state, table, column.name, type)
    else:
        state = context.state
        refuse_computed(table, column)
    _refuse_generated(table, column)
    new = replace(column, type=str(type), domain=None)
    if column.default is not None:
        await in_catalog(context, column.default, lambda: _check_default(context, new))
    after = with_column(table, at, new)
    for index in state.indexes_on(table.id):
        index_keys(after.columns, index.keys)
        index_condition(after.columns, index.condition)
        check_classes(after.columns, index.keys, index.classes, index.method)
    check_types(context.state, after)
    checks = await in_catalog(context, "", lambda: _checks_of(context, after, column.name))
    if action.using is None and _is_wider(parse_type(column.type), type):
        await replace_table(context, table, after, state=state)
    else:
        await _replace_rows(context, table, after, at, action, state, checks)


def _refuse_generated(table: Table, column: Column) -> None:
    """PgError 0A000 if a generated column of the table uses the column."""
    for computed in table.columns:
        if computed.generated and column.name in key_columns(computed.generated):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a generated column",
                detail=f'Column "{column.name}" is used by generated column "{computed.name}".',
                hint="Drop the generated column first.",
            )


def _checks_of(context: Context, after: Table, column: str) -> RowRules | None:
    """The valid CHECK constraints of a table that use a column, bound to its new type. PgError if that fails."""
    checks = tuple(check for check in after.checks if column in key_columns(check.expression))
    columns = tuple(replace(c.without_default(), generated="", domain=None) for c in after.columns)
    rules = rules_of(replace(after, columns=columns, checks=checks), context.plan_context())
    if rules is None:
        return None
    valid = {check.name for check in checks if check.is_valid}
    return replace(rules, checks=tuple(bound for bound in rules.checks if bound[0].name in valid))


async def _replace_rows(
    context: Context,
    table: Table,
    after: Table,
    at: int,
    action: SetType,
    state: CatalogState,
    checks: RowRules | None,
) -> None:
    """Replaces the table by `after`, and each row by one with a converted value at the position `at`.

    The old values cannot be read any more. PgError 23502 if a converted value is NULL in a NOT NULL column, 23514 if
    a row violates one of `checks`.
    """
    column, type = table.columns[at], action.type
    using = "" if action.using is None else action.using.text
    plan = await in_catalog(context, using, lambda: _plan_conversion(context, table, after, at, action))
    rows = await rows_to_write(context, plan, (), table.id)
    rows = await in_thread(shaped, rows, collection_schema(after))
    if not column.nullable and rows.column(at).null_count:
        raise contains_nulls(context, table, column.name)
    if checks is not None and (violation := await first_violation(context, checks, rows)) is not None:
        raise violated_by_some_row(context, table, violation[1])
    null = pa.scalar(None, type.arrow)
    numbering = replace(numbering_of(table).added(null, at), readable_from=NOW)
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

    await replace_table(context, table, after, state=state, converted=converted, rows=replaced)


def _plain_type(context: Context, type: PgType) -> PgType:
    """The type that a statement names. PgError 0A000 for a domain."""
    found = known_column(context, ColumnDefinition(Ident("", 0), type, False, None))
    if found.domain is not None:
        message = f"changing the type of a column to domain {found.domain.name} is not supported"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Add a column of the domain, and copy the values.")
    return found.type


def _refuse_users(state: CatalogState, table: Table, column: str) -> None:
    """PgError 0A000 if a view, materialized view or sink has the column."""
    for item in state.items.values():
        if isinstance(item, DerivedRelation) and table.id in item.uses:
            if column in columns_used(plan_of_view(state, item), table.id):
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
        plan_default_row(context, column)
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
    columns = tuple(replace(c.without_default(), generated="") for c in after.columns)
    plain = replace(after, id=NEW, columns=columns, checks=())
    state = replace(plan_context.state, items={**plan_context.state.items, NEW: plain})
    source = parse_query(f"SELECT {', '.join(values)} FROM {relation}")
    insert = Insert("", 0, Name((ID_SCHEMA, NEW), 0), None, (), source, ())
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
