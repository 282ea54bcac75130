"""The select list and RETURNING."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.names import forget_schema
from server.sql.bind.output_names import output_name
from server.sql.bind.rows import field_names, fields_of, names_of, row_fields
from server.sql.bind.shapes import function_name, unparenthesised
from server.sql.bind.table_functions import set_returning
from server.sql.expressions import Expression
from server.sql.functions.sets import SETS
from server.sql.relations import Project, Relation
from server.sql.scope import Scope, in_clause, located, no_table


@dataclass(slots=True)
class Item:
    """One item of a select list."""

    name: str
    expression: Expression
    tree: exp.Expr


def select_list(binder: Binder, trees: Sequence[exp.Expr], scope: Scope) -> list[Item]:
    """The items; `*` is expanded to columns."""
    items: list[Item] = []
    for tree in trees:
        if isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)):
            items += _star(binder, tree, scope)
        elif isinstance(tree, exp.Dot) and isinstance(tree.expression, exp.Star):
            items += _fields(binder, tree, scope)
        elif isinstance(tree, exp.Alias):
            items.append(Item(tree.alias, binder.expression(tree.this, scope), tree))
        else:
            items.append(Item(output_name(tree), binder.expression(tree, scope), tree))
    return items


def _fields(binder: Binder, tree: exp.Dot, scope: Scope) -> list[Item]:
    """(row).*"""
    called = unparenthesised(tree.this)
    if isinstance(called, exp.Anonymous) and (known := SETS.get(function_name(called))) is not None:
        names = [column or function_name(called) for column in known.columns]
        return [Item(name, set_returning(binder, called, scope, name), tree) for name in names]
    fields = row_fields(tree.this, scope)
    if fields is None:
        row = binder.expression(tree.this, scope)
        if row.type.fields is None:
            raise binder.unsupported(
                "the expansion of this row",
                tree,
                hint="Name the columns of the row, or write alias.* for an item of FROM.",
            )
        values = zip(names_of(row.type), fields_of(row), strict=True)
        return [Item(name, value, tree) for name, value in values]
    names = field_names(tree.this, scope)
    return [Item(name, binder.expression(field, scope), tree) for name, field in zip(names, fields, strict=True)]


def returning_items(binder: Binder, trees: Sequence[exp.Expr], scope: Scope) -> list[Item]:
    """A RETURNING list: like a select list, but without aggregates."""
    items = select_list(binder, trees, in_clause(scope, "RETURNING"))
    for item in items:
        item.expression = binder.default_unknown(binder.as_output(item.expression))
    return items


def _star(binder: Binder, tree: exp.Expr, scope: Scope) -> list[Item]:
    table = tree.table if isinstance(tree, exp.Column) else ""
    position = binder.at(tree)
    if table:
        forget_schema(binder, tree)
        for level in scope.chain:
            if level.has_table(table):
                found = level.table_entries(table)
                break
        else:
            raise no_table(scope, table, position)
    else:
        if not scope.entries and not scope.real_names:
            message = "SELECT * with no tables specified is not valid"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=position)
        found = [entry for entry in scope.entries if entry.visible and not entry.is_row]
    return [Item(entry.name, binder.read(located(entry, position)), tree) for entry in found if entry.is_listed]


def projection(binder: Binder, relation: Relation, items: Sequence[Item]) -> Project:
    """The projection of the items over the relation."""
    columns = tuple(binder.new_column(item.name, item.expression) for item in items)
    return Project(relation, columns, tuple(item.expression for item in items))
