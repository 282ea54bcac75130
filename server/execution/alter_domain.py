"""ALTER DOMAIN ... ADD CHECK, VALIDATE CONSTRAINT and SET NOT NULL: the values of all columns are checked.

The statement locks the tables, and its commit fails with 40001 if one of them was written in the meantime.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from catalog.objects.tables import Table
from catalog.objects.types import Domain
from protocol.pgwire.errors import PgError, SqlState
from server.execution.ddl.define import change_catalog
from server.execution.ddl.domains import altered_domain, named_check, refuse_maintained, with_check
from server.execution.row_rules import first_violation
from server.execution.select import relation_rows_at
from server.execution.user_types import with_domain
from server.execution.write import retried
from server.runtime.offload import offload
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.grammar.statements.domains import ConstrainDomain
from server.sql.row_rules import rules_of
from server.sql.type_names import domain_use


async def constrain_domain(context: Context, statement: ConstrainDomain) -> Result:
    """Executes the statement. PgError 23502 or 23514 if a column has a value that the domain would not allow."""

    async def attempt(number: int) -> Result:
        if context.transaction.has_effects and not context.transaction.ends_later:
            await context.commit()
        await context.enter(Mode.DEFINE, "ALTER DOMAIN")
        await _constrain(context, statement)
        if not context.transaction.ends_later:
            await context.commit()
        return Result("ALTER DOMAIN")

    return await retried(context, attempt)


async def _constrain(context: Context, statement: ConstrainDomain) -> None:
    domain = altered_domain(context, statement.name)
    only = replace(domain, not_null=False, default=None, checks=())
    if statement.check is not None:
        after = with_check(context, domain, statement.check)
        only = replace(only, checks=after.checks[-1:] if statement.check.is_valid else ())
    elif statement.validated is not None:
        check = named_check(domain, statement.validated)
        valid = tuple(replace(known, is_valid=True) if known is check else known for known in domain.checks)
        after, only = replace(domain, checks=valid), replace(only, checks=(check,))
    else:
        after, only = replace(domain, not_null=True), replace(only, not_null=True)
    refuse_maintained(context.state, domain.id)
    if only.not_null or only.checks:
        for table in list(context.state.items_of(Table)):
            if domain.id in table.depends_on:
                await _check_columns(context, table, only)
    if after != domain:
        change_catalog(context, with_domain(context.state, after))


async def _check_columns(context: Context, table: Table, domain: Domain) -> None:
    """PgError if a column of the table that has the domain contains a value that violates its constraint."""
    transaction, id = context.transaction, table.id
    await context.admit((id,))
    await context.lock((id,))
    is_new = id not in context.coordinator.state.items
    time = context.read_times.hold_latest(frozenset(() if is_new else (id,)))
    if not is_new:
        transaction.depend_on(id, time)
    rows = await relation_rows_at(context, id, time)
    if not rows.num_rows:
        return
    use = domain_use(context.state, domain)
    for number, column in enumerate(table.columns):
        if column.domain is None or column.domain.id != domain.id:
            continue
        alone = replace(table, columns=(replace(column, domain=use, generated=""),), checks=())
        rules = await offload("", rules_of, alone, context.plan_context())
        assert rules is not None
        values = rows.select([number]).rename_columns(["c0"])
        await asyncio.sleep(0)  # many columns must not delay other sessions
        if await first_violation(context, rules, values) is not None:
            fault = "null values" if domain.not_null else "values that violate the new constraint"
            raise PgError(
                SqlState.NOT_NULL_VIOLATION if domain.not_null else SqlState.CHECK_VIOLATION,
                f'column "{column.name}" of table "{table.name}" contains {fault}',
                schema_name=context.state.schemas[table.schema_id].name,
                table_name=table.name,
                column_name=column.name,
            )
