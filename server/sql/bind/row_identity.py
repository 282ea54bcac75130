"""Comparisons of the system column `ctid` of two references to one table, with which ORMs join a table to itself."""

from __future__ import annotations

from sqlglot import exp

from catalog.objects.tables import Table
from server.sql.bind.binder import Binder
from server.sql.bind.row_values import compared_rows
from server.sql.bind.shapes import unparenthesised
from server.sql.expressions import Expression
from server.sql.scope import Scope

CTID = "ctid"


def rows_identified(binder: Binder, name: str, tree: exp.Expr, scope: Scope) -> Expression | None:
    """`a.ctid = b.ctid` or `<>` of one table with an enforced primary key, as a comparison of the key.

    None for other expressions. Rows have no address: the key is what identifies one. A table whose row an outer join
    has filled with NULLs has a NULL key, as PostgreSQL has a NULL ctid there.
    """
    left, right = (_key(binder, unparenthesised(side), scope) for side in (tree.this, tree.expression))
    if left is None or right is None or left[0].id != right[0].id:
        return None
    return compared_rows(binder, name, list(zip(left[1], right[1], strict=True)), tree)


def _key(binder: Binder, tree: exp.Expr, scope: Scope) -> tuple[Table, list[Expression]] | None:
    """The table whose `ctid` a qualified name denotes, and the columns of its enforced primary key."""
    if not isinstance(tree, exp.Column) or tree.name != CTID or not tree.table:
        return None
    entries = next((found for level in scope.chain if (found := level.table_entries(tree.table))), [])
    relations = {binder.relation_of(entry.expression) for entry in entries if entry.is_listed}
    relation = relations.pop() if len(relations) == 1 else None
    table = None if relation is None else binder.context.state.items.get(relation)
    if not isinstance(table, Table):
        return None
    key = next((key for key in table.keys if key.is_primary and key.is_immediate), None)
    columns = {entry.name: entry.expression for entry in entries}
    if key is None or not columns.keys() >= {*key.columns}:
        return None
    return table, [binder.read(columns[column]) for column in key.columns]
