"""Rows as values: whole rows of a table in FROM, and (a, b) or ROW(a, b).

A row exists only while the query is bound. Where its fields are wanted (comparisons, IS NULL, `(t).a`), it is the list
of their trees. As a value it is a text of type `record`; for the functions that make JSON it is a JSON object.
"""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, JSON, JSONB, RECORD, TEXT, PgType
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import applied
from server.sql.bind.connectives import conjunction
from server.sql.bind.shapes import function_name, row_of, unparenthesised
from server.sql.coerce import ASSIGNMENT
from server.sql.expressions import Call, Case, Expression, Literal
from server.sql.functions import syntax
from server.sql.functions.records import JSON_OF_ROW, TEXT_OF_ROW
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY
from server.sql.grammar.lexer import words
from server.sql.scope import Entry, Scope, no_table

JSON_FUNCTIONS = words(
    """to_json to_jsonb json_agg jsonb_agg json_agg_strict jsonb_agg_strict json_build_array jsonb_build_array
    json_build_object jsonb_build_object json_object_agg jsonb_object_agg json_object_agg_strict
    jsonb_object_agg_strict json_array"""
)
"""Functions that write a row as a JSON object."""
TEXT_FUNCTIONS = words("count concat concat_ws format num_nulls num_nonnulls pg_typeof")
"""Other functions that accept a row."""


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
            return entries
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


def json_of_row(binder: Binder, tree: exp.Expr, scope: Scope, type: PgType, separator: str = ",") -> Expression | None:
    """The JSON object of a row, with its fields as members; None if the tree is not a row.

    `type`: json, jsonb, or record for json_agg(), which puts each row on a line of its own.
    """
    fields = row_fields(tree, scope)
    if fields is None:
        return None
    arguments: list[Expression] = [Literal(separator, TEXT)]
    for name, field in zip(field_names(tree, scope), fields, strict=True):
        value = json_of_row(binder, field, scope, JSON)
        arguments += [Literal(name, TEXT), binder.expression(field, scope) if value is None else value]
    types = (TEXT, *(ANY,) * (len(arguments) - 1))
    result = JSON if type == JSONB else type
    made: Expression = applied(binder, Resolved(JSON_OF_ROW, types, result), arguments, tree)
    made = _null_extended(tree, scope, made, arguments[2::2])
    return binder.coerce(made, JSONB, ASSIGNMENT) if type == JSONB else made


def record(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """A row as a value of type record."""
    fields = [binder.expression(field, scope) for field in row_fields(tree, scope) or ()]
    types = (TEXT, *(ANY,) * len(fields))
    made = applied(binder, Resolved(TEXT_OF_ROW, types, RECORD), [Literal("", TEXT), *fields], tree)
    return _null_extended(tree, scope, made, fields)


def _null_extended(tree: exp.Expr, scope: Scope, value: Expression, fields: list[Expression]) -> Expression:
    """NULL for the row of a table that an outer join has filled with NULLs, else `value`."""
    entries = whole_row(tree, scope)
    if not entries or not all(entry.is_extended for entry in entries):
        return value
    absent = conjunction([Call(syntax.IS_NULL, (field,), BOOL, False) for field in fields])
    return Case(((absent, Literal(None, value.type)),), value, value.type)


def argument(binder: Binder, name: str, tree: exp.Expr, scope: Scope) -> Expression:
    """An argument of a function, which may be a row if the function accepts one. 0A000 if it does not."""
    if name in JSON_FUNCTIONS:
        is_jsonb = name.startswith(("jsonb", "to_jsonb"))
        type = RECORD if name == "json_agg" else JSONB if is_jsonb else JSON
        found = json_of_row(binder, tree, scope, type)
        if found is not None:
            return found
    bound = binder.expression(tree, scope)
    if bound.type == RECORD and name not in TEXT_FUNCTIONS:
        hint = "Collect rows with json_agg() or jsonb_agg()." if name == "array_agg" else "Name its columns."
        raise binder.unsupported(f"a row as an argument of {name}()", tree, hint=hint)
    return bound


def row_to_json(binder: Binder, arguments: list[exp.Expr], scope: Scope) -> Expression | None:
    """row_to_json(row [, pretty]); None if the arguments are others. 0A000 if `pretty` is not a constant."""
    if len(arguments) not in (1, 2):
        return None
    if isinstance(arguments[0], exp.Null):
        return Literal(None, JSON)
    separator = ","
    if len(arguments) == 2:
        pretty = binder.coerce(binder.expression(arguments[1], scope), BOOL)
        if not isinstance(pretty, Literal):
            raise binder.unsupported(
                "an argument of row_to_json() that is not a constant", arguments[1], hint="Write true or false."
            )
        separator = ",\n " if pretty.value else ","
    return json_of_row(binder, arguments[0], scope, JSON, separator)


def selected_field(binder: Binder, tree: exp.Dot, scope: Scope) -> Expression | None:
    """(row).field; None if the left side is not a row. 42703."""
    fields = row_fields(tree.this, scope)
    if fields is None or not isinstance(tree.expression, exp.Identifier):
        return None
    name = tree.expression.name
    names = field_names(tree.this, scope)
    if name not in names:
        table = unparenthesised(tree.this)
        if isinstance(table, exp.Column):
            message = f"column {table.name or table.table}.{name} does not exist"
        else:
            message = f'could not identify column "{name}" in record data type'
        raise PgError(SqlState.UNDEFINED_COLUMN, message, position=binder.at(tree))
    return binder.expression(fields[names.index(name)], scope)


@form(exp.Tuple)
def row_constructor(binder: Binder, tree: exp.Tuple, scope: Scope) -> Expression:
    """(a, b) as a value."""
    return record(binder, tree, scope)


def is_row_call(tree: exp.Expr) -> bool:
    """Whether it is ROW(...)."""
    return isinstance(tree, exp.Anonymous) and function_name(tree) == "row"
