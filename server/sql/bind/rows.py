"""Rows as values: whole rows of a table in FROM, and (a, b) or ROW(a, b).

Where the fields of a row that is written in the query are wanted (comparisons, IS NULL, `(t).a`), it is the list of
their trees. As a value it has a type with `fields`. A client receives its text, which `Binder.row_text` makes.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, RECORD, PgType, row_type
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import applied
from server.sql.bind.connectives import conjunction
from server.sql.bind.shapes import row_of, unparenthesised
from server.sql.expressions import Call, Case, Expression, Literal
from server.sql.functions import syntax
from server.sql.functions.records import ROW, field_of
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY
from server.sql.scope import Entry, Scope, no_table


def whole_row(tree: exp.Expr, scope: Scope) -> list[Entry] | None:
    """The columns of the table that a bare name, or `table.*`, denotes; None if it denotes a column or nothing."""
    tree = unparenthesised(tree)
    if not isinstance(tree, exp.Column):
        return None
    star = isinstance(tree.this, exp.Star)
    name = tree.table if star else tree.name
    if not name or (tree.table and not star):
        return None
    for level in scope.chain:
        if not star and any(entry.name == name and (entry.visible or entry.is_row) for entry in level.entries):
            return None
        if entries := level.table_entries(name):
            return [entry for entry in entries if entry.is_listed]
    if star:
        raise no_table(scope, name, None)
    return None


def row_fields(tree: exp.Expr, scope: Scope) -> list[exp.Expr] | None:
    """The trees of the fields of a row; None for other trees. The columns of a whole row are named by their table."""
    entries = whole_row(tree, scope)
    if entries is not None:
        return [_named(entry) for entry in entries]
    fields = row_of(tree)
    if fields is None:
        return None
    expanded: list[exp.Expr] = []
    for field in fields:
        is_star = isinstance(field, exp.Column) and isinstance(field.this, exp.Star)
        below = row_fields(field, scope) if is_star else None
        expanded += [field] if below is None else below
    return expanded


def _named(entry: Entry) -> exp.Column:
    return exp.Column(
        this=exp.Identifier(this=entry.name, quoted=True), table=exp.Identifier(this=entry.table, quoted=True)
    )


def field_names(tree: exp.Expr, scope: Scope) -> list[str]:
    """The names of the fields of a row: those of the columns, or f1, f2, ..."""
    entries = whole_row(tree, scope)
    if entries is not None:
        return [entry.name for entry in entries]
    return [f"f{number}" for number, _ in enumerate(row_fields(tree, scope) or (), 1)]


def record(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """A row as a value."""
    fields = [binder.expression(field, scope) for field in row_fields(tree, scope) or ()]
    made = applied(binder, Resolved(ROW, (ANY,) * len(fields), RECORD), fields, tree)
    made = replace(made, type=row_type(field_names(tree, scope), [field.type for field in made.arguments]))
    return _null_extended(tree, scope, made, fields)


def _null_extended(tree: exp.Expr, scope: Scope, value: Expression, fields: list[Expression]) -> Expression:
    """NULL for the row of a table that an outer join has filled with NULLs, else `value`."""
    entries = whole_row(tree, scope)
    if not entries or not all(entry.is_extended for entry in entries):
        return value
    absent = conjunction([Call(syntax.IS_NULL, (field,), BOOL, False) for field in fields])
    return Case(((absent, Literal(None, value.type)),), value, value.type)


def selected_field(binder: Binder, tree: exp.Dot, scope: Scope) -> Expression | None:
    """(row).field of a row that is written in the query; None if the left side is not one. 42703."""
    fields = row_fields(tree.this, scope)
    if fields is None or not isinstance(tree.expression, exp.Identifier):
        return None
    return binder.expression(fields[_number(binder, tree, field_names(tree.this, scope))], scope)


def selected_field_of_value(binder: Binder, tree: exp.Dot, scope: Scope) -> Expression | None:
    """(expression).field; None if the expression is not a row. 42703."""
    if not isinstance(tree.expression, exp.Identifier) or not isinstance(tree.this, exp.Paren):
        return None
    row = binder.expression(tree.this, scope)
    return None if row.type.fields is None else field_of(row, _number(binder, tree, names_of(row.type)))


def _number(binder: Binder, tree: exp.Dot, names: list[str]) -> int:
    """The number of the field, from 0. 42703."""
    name = tree.expression.name
    if name in names:
        return names.index(name)
    table = unparenthesised(tree.this)
    if isinstance(table, exp.Column):
        message = f"column {table.name or table.table}.{name} does not exist"
    else:
        message = f'could not identify column "{name}" in record data type'
    raise PgError(SqlState.UNDEFINED_COLUMN, message, position=binder.at(tree))


def names_of(type: PgType) -> list[str]:
    """The names of the fields of a row."""
    return [name for name, _ in type.fields or ()]


def fields_of(row: Expression) -> list[Expression]:
    """The fields of a row that is a value."""
    return [field_of(row, number) for number, _ in enumerate(row.type.fields or ())]


@form(exp.Tuple)
def row_constructor(binder: Binder, tree: exp.Tuple, scope: Scope) -> Expression:
    """(a, b) as a value."""
    return record(binder, tree, scope)
