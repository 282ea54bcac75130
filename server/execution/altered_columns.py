"""Functions that the actions of ALTER TABLE on columns share: they find a column, and replace the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.layout import Numbering
from catalog.objects.columns import Column
from catalog.objects.relations import DerivedRelation, Relation
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_indexes import EnforcedKey, enforced_keys
from server.coordinator.snapshot_cache import layout_of
from server.execution.add_key import enforce
from server.execution.ddl.define import change_catalog, in_catalog
from server.execution.ddl.view_columns import with_views
from server.execution.planning import default_values
from server.execution.write import rows_to_write
from server.session_state.context import Context
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.parts import Ident
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.stored_columns import Change
from server.sql.stored_query import relation_query
from server.sql.writes.plan import WritePlan
from server.sql.writes.statements import plan_insert

NEW = ObjectId("new")  # of a table that exists only in the plan of a statement


def column_position(table: Relation, name: Ident) -> int:
    """The position of a column. PgError 42703."""
    for at, column in enumerate(table.columns):
        if column.name == name.name:
            return at
    message = f'column "{name.name}" of relation "{table.name}" does not exist'
    raise PgError(SqlState.UNDEFINED_COLUMN, message)


def with_column(table: Table, at: int, column: Column) -> Table:
    """The table with another column at a position."""
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1 :]))


def numbering_of(table: Table) -> Numbering:
    """The numbers under which the columns of a table are stored."""
    return table.numbering or Numbering.initial(len(table.columns))


def refuse_computed(table: Table, column: Column) -> None:
    """PgError 42601 if the column is an identity or a generated column, whose default and type cannot be set."""
    if column.identity:
        message = f'column "{column.name}" of relation "{table.name}" is an identity column'
        raise PgError(SqlState.SYNTAX_ERROR, message)
    if column.generated:
        message = f'column "{column.name}" of relation "{table.name}" is a generated column'
        raise PgError(SqlState.SYNTAX_ERROR, message)


async def replace_table(
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

    def derived() -> tuple[CatalogState, list[EnforcedKey]]:
        derived = (state or context.state).with_item(after)
        if change is not None:
            derived = with_views(derived, before, change)
        derived = _with_nulls(derived, after.id)
        known = {key.id for key in enforced_keys(context.state, after.id)}
        return derived, [key for key in enforced_keys(derived, after.id) if key.id not in known]

    next_state, changed_keys = await in_catalog(context, "", derived)
    if converted is not None:
        context.transaction.convert(after.id, converted, layout_of(after))
    change_catalog(context, next_state)
    if rows is not None:
        await rows()
    for key in changed_keys:
        await enforce(context, after, key, ())


def _with_nulls(state: CatalogState, id: ObjectId) -> CatalogState:
    """The state in which the columns of all views over a relation are nullable as their queries say."""
    views = [item for item in state.dependents(id) if isinstance(item, DerivedRelation)]
    while True:
        before = state
        for view in views:
            old = state.items[view.id]
            assert isinstance(old, DerivedRelation)
            fields = plan_of_view(state, old).columns
            columns = tuple(replace(c, nullable=f.nullable) for c, f in zip(old.columns, fields, strict=True))
            if columns != old.columns:
                state = state.with_item(replace(old, columns=columns))
        if state is before:
            return state


def plan_of_view(state: CatalogState, view: DerivedRelation) -> QueryPlan:
    """The plan of a view's query over the relations of `state`."""
    maintained = isinstance(view, MaterializedView)
    return plan_query(parse_query(view.query), PlanContext(state, "", (), ""), None, maintained=maintained)


async def has_rows(context: Context, table: Table) -> bool:
    """Whether the table has rows, as the transaction sees it."""
    plan = plan_query(relation_query(table, (table.columns[0].name,)), context.plan_context())
    rows = await rows_to_write(context, plan, (), table.id)
    return bool(rows.num_rows)


def plan_default_row(context: Context, column: Column) -> WritePlan:
    """An INSERT of a default row into a table that has only the column."""
    plan_context = context.plan_context()
    state = plan_context.state
    table = Table(NEW, next(iter(state.schemas)), "", (column,))
    state = replace(state, items={**state.items, NEW: table})
    return plan_insert(default_values(table), replace(plan_context, state=state))
