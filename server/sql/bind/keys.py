"""Checks of sort and group keys."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import RECORD
from server.sql.bind.binder import Binder
from server.sql.expressions import Call, Expression, SortKey, walk
from server.sql.functions.records import TEXT_OF_ROW
from server.sql.group_keys import needs_key

_EQUAL_BY_TEXT = frozenset(
    (
        "bool",
        "int2",
        "int4",
        "int8",
        "numeric",
        "text",
        "varchar",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
    )
)
_UNORDERED = ("json", "jsonb", "interval", "bpchar")
"""Types of array elements that Spark orders differently from PostgreSQL."""


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
    if expression.type == RECORD:
        raise binder.unsupported("sorting by a row", tree, hint="Sort by its columns.")
    if expression.type.element is not None and expression.type.element.name in _UNORDERED:
        raise binder.unsupported(
            f"sorting by {expression.type.base_display}", tree, hint="Sort by the elements, or by the array as text."
        )


def groupable(binder: Binder, expression: Expression, tree: exp.Expr | None, *, by_keys: bool = True) -> None:
    """42883 if the type has no equality. `by_keys` False: `group_keys` does not serve this clause, 0A000 if it must."""
    name = expression.type.representation
    if name == "json":
        message = "could not identify an equality operator for type json"
        raise PgError(SqlState.UNDEFINED_FUNCTION, message, position=binder.at(tree))
    if expression.type == RECORD and not _is_equal_by_text(expression):
        raise binder.unsupported("grouping by this row", tree, hint="Group by its columns.")
    if needs_key(expression.type):
        binder.has_group_keys = True
        if not by_keys:
            raise binder.unsupported(
                f"grouping by {expression.type.base_display}",
                tree,
                hint="Cast the column to text, or use DISTINCT or GROUP BY of a subquery.",
            )


def _is_equal_by_text(row: Expression) -> bool:
    """Whether two values of a row are equal if and only if their texts are."""
    calls = [node for node in walk(row) if isinstance(node, Call) and node.function is TEXT_OF_ROW]
    fields = [field.type for call in calls[:1] for field in call.arguments[1:]]
    return bool(calls) and all((type.element or type).name in _EQUAL_BY_TEXT for type in fields)
