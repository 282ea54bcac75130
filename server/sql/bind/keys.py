"""Checks of sort and group keys."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, is_row
from server.sql.bind.binder import Binder
from server.sql.expressions import Expression, SortKey
from server.sql.functions.sort_forms import is_ordered
from server.sql.group_keys import has_key, needs_key


def sort_key(binder: Binder, tree: exp.Ordered, expression: Expression) -> SortKey:
    """The sort key. By default NULLs are last when ascending, first when descending."""
    sortable(binder, expression, tree)
    return SortKey(expression, bool(tree.args.get("desc")), bool(tree.args.get("nulls_first")))


def sortable(binder: Binder, expression: Expression, tree: exp.Expr) -> None:
    """42883 if the type has no order, 0A000 if Spark cannot sort by it."""
    name = expression.type.representation
    if name == "json":
        raise PgError(
            SqlState.UNDEFINED_FUNCTION,
            f"could not identify an ordering operator for type {name}",
            hint="Use an explicit ordering operator or modify the query.",
            position=binder.at(tree),
        )
    _check_fields(binder, expression.type, tree)
    if expression.type.name != "jsonb" and not is_ordered(expression.type):
        hint = "Sort by its columns." if is_row(expression.type) else "Sort by the elements, or by the array as text."
        raise binder.unsupported(f"sorting by {_shown(expression.type)}", tree, hint=hint)


def groupable(binder: Binder, expression: Expression, tree: exp.Expr | None, *, by_keys: bool = True) -> None:
    """42883 if the type has no equality. `by_keys` False: `group_keys` does not serve this clause, 0A000 if it must."""
    name = expression.type.representation
    if name == "json":
        message = "could not identify an equality operator for type json"
        raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=binder.at(tree))
    _check_fields(binder, expression.type, tree)
    if is_row(expression.type) and not has_key(expression.type):
        raise binder.unsupported(f"grouping by {_shown(expression.type)}", tree, hint="Group by its columns.")
    if needs_key(expression.type):
        binder.has_group_keys = True
        if not by_keys:
            raise binder.unsupported(
                f"grouping by {expression.type.base_display}",
                tree,
                hint="Cast the column to text, or use DISTINCT or GROUP BY of a subquery.",
            )


def _check_fields(binder: Binder, type: PgType, tree: exp.Expr | None) -> None:
    """42883 for a row with a field of type json."""
    for _, field in (type.element or type).fields or ():
        _check_fields(binder, field, tree)
        if field.name == "json":
            message = "could not identify a comparison function for type json"
            raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=binder.at(tree))


def _shown(type: PgType) -> str:
    return "this row" if is_row(type) else type.base_display
