"""CREATE TABLE AS and SELECT INTO: the table and its rows are committed together.

The rows are read as those of INSERT ... SELECT: what the query reads is locked, and the committer checks that nothing
was written since. The catalog is changed after the rows are computed, so that a change of it in the meantime by another
session does not fail the statement.
"""

from __future__ import annotations

from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT, UNKNOWN
from server.authorization import privileges
from server.coordinator.snapshot_cache import collection_schema
from server.dataflow.runtime.spark_rows import shaped
from server.execution.ddl import tables
from server.execution.ddl.columns import check_types
from server.execution.ddl.define import change_catalog
from server.execution.select import rows_without_inputs
from server.execution.write import retried, rows_to_write
from server.runtime.threads import in_thread
from server.runtime.trace import step
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.tables import ColumnDefinition, CreateTable, CreateTableAs
from server.sql.plan import QueryPlan

_WITHOUT_ROWS = Result("CREATE TABLE AS")


async def create_table_as(
    context: Context, statement: CreateTableAs, plan: QueryPlan, parameters: tuple[object, ...]
) -> Result:
    """Executes CREATE TABLE AS or SELECT INTO. PgError 42501 if the role lacks a privilege."""

    async def attempt(number: int) -> Result:
        result = await _create(context, statement, plan, parameters)
        if not context.transaction.ends_later:
            await context.commit()
        return result

    return await retried(context, attempt)


async def _create(
    context: Context, statement: CreateTableAs, plan: QueryPlan, parameters: tuple[object, ...]
) -> Result:
    definition = _definition(statement, plan)
    privileges.require_query(context.state, context.role, plan)
    if context.transaction.has_effects and not context.transaction.ends_later:
        await context.commit()
    await context.enter(Mode.DEFINE, statement.verb)
    after = tables.create(context, definition)  # before rows are computed, because it may refuse the definition
    if after is context.state:
        return _WITHOUT_ROWS
    if not statement.with_data:
        change_catalog(context, after)
        return _WITHOUT_ROWS
    if plan.inputs:
        rows = await rows_to_write(context, plan, parameters, None)
    else:
        rows = await rows_without_inputs(context, plan, parameters)
    before = context.state
    after = tables.create(context, definition)
    if after is before:
        return _WITHOUT_ROWS
    change_catalog(context, after)
    table = _created(before, after)
    with step("write", table.id) as writing:
        if rows.num_rows:
            rows = await in_thread(shaped, rows, collection_schema(table))
            await context.add_changes(table, [rows])
        writing.rows = rows.num_rows
    return Result(f"SELECT {rows.num_rows}")


def _created(before: CatalogState, after: CatalogState) -> Table:
    (id,) = after.items.keys() - before.items.keys()
    table = after.items[id]
    assert isinstance(table, Table)
    return table


def _definition(statement: CreateTableAs, plan: QueryPlan) -> CreateTable:
    """CREATE TABLE with the columns of the query. PgError 42601 for too many names."""
    fields, names = plan.columns, statement.columns
    if len(names) > len(fields):
        raise PgError(SqlState.SYNTAX_ERROR, "too many column names were specified")
    final = [*names, *(Ident(field.name, 0) for field in fields[len(names) :])]
    check_types(final, (field.type for field in fields))
    columns = tuple(
        ColumnDefinition(name, TEXT if field.type == UNKNOWN else field.type, False, None)
        for name, field in zip(final, fields, strict=True)
    )
    return CreateTable(
        statement.text,
        statement.offset,
        statement.name,
        columns,
        (),
        statement.if_not_exists,
        statement.retain,
        temporary=statement.temporary,
        on_commit=statement.on_commit,
    )
