"""WHERE CURRENT OF: the current row of a cursor.

A cursor that locks the rows of one table with a primary key keeps the keys of its rows. The statement is planned with a
condition on the key of the current row. It therefore also finds a row that the transaction has changed since.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.roles import Privilege
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import DEFAULT_STYLE, value_text
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.execution.names import find_item
from server.session_state.context import Context
from server.session_state.cursor_rows import CurrentRows, CursorRows
from server.session_state.portals import Portals
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.parse import parse_expression
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Update
from server.sql.type_names import sql_name

_HINT = "Declare the cursor with FOR UPDATE, for a query of only this table, which must have a primary key."


def _condition(current: CurrentRows, table: Table, row: int, qualifier: str) -> str:
    """The SQL condition that selects a row."""
    parts = []
    for number, column in zip(current.columns, current.keys.columns, strict=True):
        type = parse_type(table.columns[number].type)
        text = value_text(column, row, type, DEFAULT_STYLE)
        assert text is not None  # a primary key has no NULL
        literal = text.replace("'", "''")
        name = f"{quote_identifier(qualifier)}.{quote_identifier(table.columns[number].name)}"
        parts.append(f"{name} = CAST('{literal}' AS {sql_name(type)})")
    return " AND ".join(parts)


def with_key(context: Context, select: object) -> tuple[Select, Table, tuple[int, ...]] | None:
    """A query of a cursor with the primary key of its table behind its columns, and the numbers of the key's columns.

    None unless the query locks the rows of one table that has a primary key, which the role may read.
    """
    if not isinstance(select, Select) or not isinstance(tree := select.query.tree, exp.Select):
        return None
    item = tree.args.get("from_")
    source = item.this if isinstance(item, exp.From) else None
    if not tree.args.get("locks") or tree.args.get("with_") or tree.args.get("joins"):
        return None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or source.args.get("joins"):
        return None
    parts = tuple(source.args[k].name for k in ("catalog", "db", "this") if source.args.get(k) is not None)
    found = find_item(context, Name(parts, select.query.offset))
    if not isinstance(found, Table):
        return None
    key = next((key for key in found.keys if key.is_primary and key.is_immediate), None)
    if key is None:
        return None
    qualifier = source.alias or source.name
    numbers = tuple(n for name in key.columns for n, column in enumerate(found.columns) if column.name == name)
    state, role = context.state, context.role
    if not privileges.has(state, role, found.id, Privilege.SELECT) and not (
        privileges.columns_with(state, role, found.id, Privilege.SELECT).issuperset(numbers)
    ):
        return None
    named = [
        exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(qualifier, quoted=True))
        for name in key.columns
    ]
    keyed = tree.copy()
    keyed.set("expressions", [*keyed.expressions, *named])
    return replace(select, query=replace(select.query, tree=keyed)), found, numbers


def located(context: Context, portals: Portals, statement: Update | Delete) -> Update | Delete:
    """The statement with a condition that selects the current row of its cursor. PgError 34000, 24000, 42P01."""
    assert statement.current_of is not None
    name = statement.current_of.name
    cursor = portals.cursor(name)
    table = find_item(context, statement.table)
    if isinstance(table, View):
        message = "WHERE CURRENT OF on a view is not implemented"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Update the table that the view reads.")
    if cursor.is_held:
        raise _invalid(f'cursor "{name}" is held from a previous transaction')
    rows = cursor.result.rows if cursor.result is not None else None
    current = cursor.current
    if current is None or not isinstance(rows, CursorRows) or current.table != table.id:
        raise _invalid(f'cursor "{name}" is not a simply updatable scan of table "{table.name}"', _HINT)
    assert isinstance(table, Table)
    if (row := rows.current) is None:
        raise _invalid(f'cursor "{name}" is not positioned on a row')
    qualifier = statement.alias.name if statement.alias is not None else table.name
    return replace(statement, where=parse_expression(_condition(current, table, row, qualifier)), current_of=None)


def _invalid(message: str, hint: str | None = None) -> PgError:
    return PgError(SqlState.INVALID_CURSOR_STATE, message, hint=hint)
