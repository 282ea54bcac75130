"""CREATE TABLE and SHOW CREATE TABLE."""

from __future__ import annotations

from catalog.objects import Column, Table
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.types import parse_type
from server.execution.ddl.columns import check_columns
from server.execution.ddl.named_objects import unless_exists
from server.execution.ddl.retention import retain_clause, retained_ms
from server.execution.names import qualified_name, schema_of
from server.execution.planning import plan_default
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.tables import CreateTable


def create(context: Context, statement: CreateTable) -> CatalogState:
    """Executes CREATE TABLE."""
    schema, name = schema_of(context, statement.name)
    names = [definition.name.name for definition in statement.columns]
    check_columns([definition.name for definition in statement.columns], "table")
    columns = []
    for definition in statement.columns:
        default = plan_default(definition, context.plan_context()) if definition.default is not None else None
        columns.append(Column(definition.name.name, str(definition.type), not definition.not_null, default))
    for key in statement.keys:
        for column in key.columns:
            if column.name not in names:
                raise PgError(
                    SqlState.UNDEFINED_COLUMN,
                    f'column "{column.name}" named in key does not exist',
                    position=column.position,
                )
    id, state = context.state.new_id()
    keys = tuple(tuple(column.name for column in key.columns) for key in statement.keys)
    retain_ms = retained_ms(context, statement.retain)
    try:
        state = state.with_item(Table(id, schema.id, name, tuple(columns), keys, retain_ms=retain_ms))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
    if statement.keys:
        context.notice(
            Notice(
                f'PRIMARY KEY and UNIQUE constraints of table "{name}" are not enforced',
                severity=Severity.NOTICE,
                hint="They are stored as documentation. Duplicates are not rejected.",
            )
        )
    return state


def show_create(context: Context, table: Table) -> str:
    """The CREATE TABLE statement of a table."""
    columns = [
        f"{quote_identifier(c.name)} {parse_type(c.type).display}"
        + ("" if c.nullable else " NOT NULL")
        + (f" DEFAULT {c.default}" if c.default is not None else "")
        for c in table.columns
    ]
    columns += [f"UNIQUE ({', '.join(map(quote_identifier, key))})" for key in table.keys]
    return f"CREATE TABLE {qualified_name(context, table)} ({', '.join(columns)}){retain_clause(table)}"
