"""The actions ADD CHECK and VALIDATE CONSTRAINT of ALTER TABLE: the rows of the table are checked.

The statement locks the table, and its commit fails with 40001 if the table was written in the meantime.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from server.execution.ddl.checks import named_check, with_check
from server.execution.ddl.define import change_catalog, in_catalog
from server.execution.ddl.foreign_keys import report_not_enforced
from server.execution.row_rules import first_violation, violated_by_some_row
from server.execution.select import relation_rows_at
from server.runtime.offload import offload
from server.session_state.context import Context
from server.sql.grammar.statements.checks import CheckConstraint
from server.sql.row_rules import rules_of


async def add_check(context: Context, table: Table, given: CheckConstraint) -> None:
    """Executes ADD CHECK. PgError 23514 if a row violates the constraint."""
    after = await in_catalog(context, "", lambda: with_check(context, table, given))
    check = after.checks[-1]
    if check.is_valid:
        await check_all(context, table, replace(table, checks=(check,)))
    change_catalog(context, context.state.with_item(after))


async def validate_check(context: Context, table: Table, name: str) -> None:
    """Executes VALIDATE CONSTRAINT, which has no effect on a foreign key, since no statement enforces it.

    PgError 23514 if a row violates the constraint, 42704, 42809.
    """
    if any(key.name == name for key in table.foreign_keys):
        report_not_enforced(context, table)
        return
    if any(key.name == name for key in table.keys):
        message = f'constraint "{name}" of relation "{table.name}" is not a foreign key or check constraint'
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message)
    check = named_check(table, name)
    if check.is_valid:
        return
    await check_all(context, table, replace(table, checks=(check,)))
    valid = tuple(replace(known, is_valid=True) if known is check else known for known in table.checks)
    change_catalog(context, context.state.with_item(replace(table, checks=valid)))


async def check_all(context: Context, table: Table, checked: Table) -> None:
    """PgError 23514 if a row of the table violates the only constraint of `checked`."""
    transaction, id = context.transaction, table.id
    await context.admit((id,))
    await context.lock((id,))
    is_new = id not in context.coordinator.state.items
    time = context.read_times.hold_latest(frozenset(() if is_new else (id,)))
    if not is_new:
        transaction.depend_on(id, time)
    rows = await relation_rows_at(context, id, time)
    rules = await offload("", rules_of, checked, context.plan_context())
    assert rules is not None
    if (violation := await first_violation(context, rules, rows)) is not None:
        raise violated_by_some_row(context, table, violation[1])
