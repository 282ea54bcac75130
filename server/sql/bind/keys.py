"""What rows may be sorted and grouped by."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.expressions import Expression, SortKey

_UNORDERED = ("json", "jsonb", "interval", "bpchar")
"""Elements of arrays that Spark does not order as PostgreSQL does."""


def sort_key(binder: Binder, tree: exp.Ordered, expression: Expression) -> SortKey:
    """NULLs are last when ascending, first when descending, unless said otherwise."""
    sortable(binder, expression, tree)
    return SortKey(expression, bool(tree.args.get("desc")), bool(tree.args.get("nulls_first")))


def sortable(binder: Binder, expression: Expression, tree: exp.Expr) -> None:
    """42883 or 0A000 unless the type has an order."""
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
    """42883 or 0A000 unless values of the type can be told equal by Spark as PostgreSQL tells."""
    name = expression.type.name
    if name == "json":
        message = "could not identify an equality operator for type json"
        raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=binder.at(tree))
    padded = name == "bpchar" and expression.type.length is not None  # equal values have equal bytes
    if name in ("interval", "jsonb", "bpchar") and not padded:
        raise binder.unsupported(f"grouping by {expression.type.base_display}", tree)
