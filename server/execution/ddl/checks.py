"""CHECK constraints and generated columns in CREATE TABLE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.objects.columns import Check
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from server.execution.ddl.columns import check_number_of_checks
from server.execution.ddl.foreign_keys import constraint_names, with_references
from server.session_state.context import Context
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.row_rules import validate


def with_rules(
    context: Context,
    table: Table,
    definitions: Sequence[ColumnDefinition],
    rules: Sequence[CheckConstraint | Reference],
) -> Table:
    """The table with the constraints `rules` and the generated columns of CREATE TABLE. PgError."""
    copied = {check.name for check in table.checks}
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
            name = rule.name.name if rule.name is not None else ""
            if name not in copied and any(check.name == name for check in table.checks):
                message = f'check constraint "{name}" already exists'
                raise PgError(SqlState.DUPLICATE_OBJECT, message)
            table = with_check(context, table, replace(rule, is_valid=True))
    return with_references(context, table, [rule for rule in rules if isinstance(rule, Reference)])


def with_check(context: Context, table: Table, check: CheckConstraint) -> Table:
    """The table with another CHECK constraint, the last one. PgError 42710 if its name is taken, 54000."""
    check_number_of_checks(table.checks, "tables")
    used, text = validate(context.plan_context(), table.name, table.columns, check.expression, "")
    taken = constraint_names(table)
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
