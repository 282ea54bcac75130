"""ALTER TABLE ... ADD CHECK and VALIDATE CONSTRAINT: the rows of the table are checked.

The statement locks the table, and its commit fails with 40001 if the table was written in the meantime.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.objects import Table
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.checks import named_check, with_check
from server.execution.ddl.define import change_catalog
from server.execution.ddl.named_objects import altered_item
from server.execution.row_rules import first_violation
from server.execution.select import relation_rows_at
from server.execution.write import retried
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.statements.checks import AddCheck, ValidateCheck
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.row_rules import rules_of


async def change_check(context: Context, statement: AddCheck | ValidateCheck) -> Result:
    """Executes ALTER TABLE ... ADD CHECK or VALIDATE CONSTRAINT. PgError 23514 if a row violates the constraint."""

    async def attempt(number: int) -> Result:
        if context.transaction.has_effects and not context.transaction.ends_later:
            await context.commit()
        await context.enter(Mode.DEFINE, "ALTER TABLE")
        await _change(context, statement)
        if not context.transaction.ends_later:
            await context.commit()
        return Result("ALTER TABLE")

    return await retried(context, attempt)


async def _change(context: Context, statement: AddCheck | ValidateCheck) -> None:
    table = altered_item(context, ObjectKind.TABLE, statement.table, if_exists=statement.if_exists)
    if table is None:
        return
    assert isinstance(table, Table)
    privileges.require_owner(context.state, context.role, table)
    if isinstance(statement, AddCheck):
        after = with_check(context, table, statement.check)
        check = after.checks[-1]
        is_checked = check.is_valid
    else:
        check = named_check(table, statement.name.name)
        is_checked = not check.is_valid
        valid = tuple(replace(known, is_valid=True) if known is check else known for known in table.checks)
        after = replace(table, checks=valid)
    if is_checked:
        await check_all(context, table, replace(table, checks=(check,)))
    if after != table:
        change_catalog(context, context.state.with_item(after))


async def check_all(context: Context, table: Table, checked: Table) -> None:
    """PgError 23514 if a row of the table violates the only constraint of `checked`."""
    transaction, id = context.transaction, table.id
    await context.admit((id,))
    await context.lock((id,))
    is_new = id not in context.coordinator.state.items
    time = context.hold_latest(frozenset(() if is_new else (id,)))
    if not is_new:
        transaction.depend_on(id, time)
    rows = await relation_rows_at(context, id, time)
    rules = rules_of(checked, context.plan_context())
    assert rules is not None
    if await first_violation(context, rules, rows) is not None:
        message = f'check constraint "{checked.checks[0].name}" of relation "{table.name}" is violated by some row'
        raise PgError(SqlState.CHECK_VIOLATION, message)
