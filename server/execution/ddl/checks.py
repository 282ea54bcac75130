"""CHECK constraints and generated columns in CREATE TABLE, and ALTER TABLE ... DROP CONSTRAINT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.objects import Check, Table
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_item
from server.execution.names import find_relation
from server.session_state.context import Context
from server.sql.grammar.statements.checks import AddReference, CheckConstraint, Reference
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.row_rules import validate


def with_rules(
    context: Context,
    table: Table,
    definitions: Sequence[ColumnDefinition],
    rules: Sequence[CheckConstraint | Reference],
) -> Table:
    """The table with the CHECK constraints and generated columns of CREATE TABLE. PgError."""
    columns = list(table.columns)
    for number, column in enumerate(columns):
        for definition in definitions:
            if definition.name.name == column.name and definition.generated is not None:
                columns[number] = replace(column, generated=definition.generated.text)
    for definition in definitions:
        if definition.generated is not None:
            name = definition.name.name
            _, text = validate(context.plan_context(), table.name, columns, definition.generated, name)
            columns = [replace(c, generated=text) if c.name == name else c for c in columns]
    table = replace(table, columns=tuple(columns))
    for rule in rules:
        if isinstance(rule, CheckConstraint):
            if rule.name is not None and any(check.name == rule.name.name for check in table.checks):
                message = f'check constraint "{rule.name.name}" already exists'
                raise PgError(SqlState.DUPLICATE_OBJECT, message)
            table = with_check(context, table, replace(rule, is_valid=True))
        elif rule.table.parts != (table.name,):
            find_relation(context, rule.table)  # raises
    if any(isinstance(rule, Reference) for rule in rules):
        context.notice(_not_enforced(table.name))
    return table


def with_check(context: Context, table: Table, check: CheckConstraint) -> Table:
    """The table with another CHECK constraint, the last one. PgError 42710 if its name is taken."""
    used, text = validate(context.plan_context(), table.name, table.columns, check.expression, "")
    taken = {known.name for known in table.checks}
    if check.name is not None:
        name = check.name.name
        if name in taken:
            message = f'constraint "{name}" for relation "{table.name}" already exists'
            raise PgError(SqlState.DUPLICATE_OBJECT, message)
    else:
        stem = "_".join([table.name, *(used if len(used) == 1 else ()), "check"])
        number, name = 0, stem
        while name in taken:
            number += 1
            name = f"{stem}{number}"
    return replace(table, checks=(*table.checks, Check(name, text, check.is_valid)))


def named_check(table: Table, name: str) -> Check:
    """The CHECK constraint of that name. PgError 42704."""
    for check in table.checks:
        if check.name == name:
            return check
    raise PgError(SqlState.UNDEFINED_OBJECT, f'constraint "{name}" of relation "{table.name}" does not exist')


def add_reference(context: Context, statement: AddReference) -> CatalogState:
    """Executes ALTER TABLE ... ADD FOREIGN KEY, which has no effect."""
    state = context.state
    table = altered_item(context, ObjectKind.TABLE, statement.table, if_exists=statement.if_exists)
    if table is not None:
        privileges.require_owner(state, context.role, table)
        find_relation(context, statement.reference.table)  # raises
        context.notice(_not_enforced(table.name))
    return state


def _not_enforced(table: str) -> Notice:
    return Notice(
        f'FOREIGN KEY constraints of table "{table}" are not enforced',
        severity=Severity.NOTICE,
        hint="They are not stored. Rows that refer to no row are not rejected.",
    )
