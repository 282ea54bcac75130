"""Checks of sort and group keys."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.expressions import Expression, SortKey

_UNORDERED = ("json", "jsonb", "interval", "bpchar")
"""Types of array elements that Spark orders differently from PostgreSQL."""


def sort_key(binder: Binder, tree: exp.Ordered, expression: Expression) -> SortKey:
    """The sort key. By default NULLs are last when ascending, first when descending."""
    sortable(binder, expression, tree)
    return SortKey(expression, bool(tree.args.get("desc")), bool(tree.args.get("nulls_first")))


def sortable(binder: Binder, expression: Expression, tree: exp.Expr) -> None:
    """42883 if the type has no order, 0A000 if Spark cannot sort by it."""
    name = expression.type.name
    if name == "json":
        raise PgError(
            SqlState.UNDEFINED_FUNCTION,
            f"could not identify an ordering operator for type {name}",
            hint="Use an explicit ordering operator or modify the query.",
            position=binder.at(tree),
        )
    if expression.type.element is not None and expression.type.element.name in _UNORDERED:
        raise binder.unsupported(f"sorting by {expression.type.base_display}", tree)


def groupable(binder: Binder, expression: Expression, tree: exp.Expr | None) -> None:
    """42883 if the type has no equality, 0A000 if Spark's equality of the type differs from PostgreSQL's."""
    name = expression.type.name
    if name == "json":
        message = "could not identify an equality operator for type json"
        raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=binder.at(tree))
    padded = name == "bpchar" and expression.type.length is not None  # equal values have equal bytes
    if name in ("interval", "jsonb", "bpchar") and not padded:
        raise binder.unsupported(f"grouping by {expression.type.base_display}", tree)
