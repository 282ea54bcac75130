"""Window functions: OVER, the WINDOW clause, and the node that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder, form
from server.sql.bind.exclusions import over_parts
from server.sql.bind.frames import frame_of, over_groups
from server.sql.bind.functions import function
from server.sql.bind.keys import groupable, sort_key
from server.sql.bind.select_list import Item
from server.sql.bind.shapes import function_name
from server.sql.expressions import (
    Aggregate,
    Column,
    ColumnRef,
    Expression,
    SortKey,
    Subquery,
    WindowCall,
    children,
    contains,
    transform,
)
from server.sql.functions.aggregates import IN_WINDOW, ORDERED_SETS
from server.sql.functions.table import Kind
from server.sql.relations import Relation, Window
from server.sql.scope import Scope, in_clause


@form(exp.Window)
def window_call(binder: Binder, tree: exp.Window, scope: Scope) -> Expression:
    """call OVER (...) or OVER name. 42P20, 0A000."""
    if scope.clause is not None:
        if scope.clause == "aggregate function calls":
            message = "aggregate function calls cannot contain window function calls"
            raise PgError(SqlState.GROUPING_ERROR, message, position=binder.at(tree))
        message = f"window functions are not allowed in {scope.clause}"
        raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(tree))
    call = function(binder, tree.this, scope, over=True)
    if not isinstance(call, Aggregate):
        name = function_name(tree.this) if isinstance(tree.this, exp.Anonymous) else "this"
        message = f"OVER specified, but {name} is not a window function nor an aggregate function"
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=binder.at(tree))
    if call.function.name in ORDERED_SETS:
        message = f"OVER is not supported for ordered-set aggregate {call.function.name}"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    if call.distinct:
        message = "DISTINCT is not implemented for window functions"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    if call.order:
        message = "aggregate ORDER BY is not implemented for window functions"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    if call.filter is not None and call.function.kind is Kind.WINDOW:
        message = "FILTER is not implemented for non-aggregate window functions"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    partition_trees, order_tree, spec = _definition(binder, tree, scope, list(scope.windows))
    inner = in_clause(scope, None)
    partition = tuple(binder.default_unknown(binder.expression(p, inner)) for p in partition_trees)
    for expression in partition:
        groupable(binder, expression, tree)
    order = tuple(
        sort_key(binder, o, binder.default_unknown(binder.expression(o.this, inner)))
        for o in (order_tree.expressions if order_tree is not None else ())
    )
    frame, ranged = frame_of(binder, spec, call, order, tree)
    call = replace(call, function=IN_WINDOW.get(call.function, call.function))
    if frame is not None and not frame.is_plain:
        return over_parts(binder, call, partition, order, frame, ranged, tree)
    text = str(frame or "")
    if frame is not None and frame.kind == "GROUPS":
        text, ranged = over_groups(text, partition, order)
    offsets = () if frame is None else frame.offsets
    return WindowCall(call, partition, ranged, text, binder.at(tree), offsets)


def _definition(
    binder: Binder, tree: exp.Expr, scope: Scope, known: Sequence[str]
) -> tuple[Sequence[exp.Expr], exp.Expr | None, exp.Expr | None]:
    """PARTITION BY, ORDER BY and frame of a window, including those inherited from a named window in `known`."""
    partition, order, spec = (tree.args.get(k) for k in ("partition_by", "order", "spec"))
    base = tree.args.get("alias")
    if base is None:
        return partition or (), order, spec
    if base.name not in known:
        message = f'window "{base.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message, position=binder.at(base))
    before = known[: known.index(base.name)]
    base_partition, base_order, base_spec = _definition(binder, scope.windows[base.name], scope, before)
    fault = None
    if partition:
        fault = f'cannot override PARTITION BY clause of window "{base.name}"'
    elif order is not None and base_order is not None:
        fault = f'cannot override ORDER BY clause of window "{base.name}"'
    elif base_spec is not None and (
        order is not None or spec is not None or not isinstance(tree.this, (exp.Func, exp.Filter))
    ):
        fault = f'cannot copy window "{base.name}" because it has a frame clause'
    if fault is not None:
        raise PgError(SqlState.WINDOWING_ERROR, fault, position=binder.at(base))
    return base_partition, base_order if order is None else order, base_spec if spec is None else spec


def named_windows(binder: Binder, tree: exp.Select) -> dict[str, exp.Expr]:
    """WINDOW name AS (...), ...: the definitions by name. 42P20 if a name is defined twice."""
    windows: dict[str, exp.Expr] = {}
    for window in tree.args.get("windows") or ():
        if window.this.name in windows:
            message = f'window "{window.this.name}" is already defined'
            raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(window.this))
        windows[window.this.name] = window
    return windows


def windowed(
    binder: Binder, relation: Relation, items: list[Item], order: list[SortKey]
) -> tuple[Relation, list[Item], list[SortKey]]:
    """Adds a node for all window functions of the items and the order. Returns both rewritten over its columns."""
    columns: dict[WindowCall, Column] = {}
    numbers: dict[WindowCall, Column] = {}  # of the groups of frames in mode GROUPS, which have a node of their own

    def numbered(key: SortKey) -> SortKey:
        if not _is_group_number(key.expression):
            return key
        column = numbers.get(key.expression)
        if column is None:
            column = numbers[key.expression] = binder.new_column("group", key.expression)
        return replace(key, expression=ColumnRef(column))

    def change(node: Any) -> Any | None:
        if isinstance(node, Subquery):
            return node
        if not isinstance(node, WindowCall):
            return None
        if node.frame.startswith("RANGE"):
            node = replace(node, order=tuple(map(numbered, node.order)))
        if any(contains(child, WindowCall) for child in children(node)):
            message = "window function calls cannot be nested"
            raise PgError(SqlState.WINDOWING_ERROR, message, position=node.position)
        column = columns.get(node)
        if column is None:
            column = columns[node] = binder.new_column(node.call.function.name, node)
        return ColumnRef(column)

    for item in items:
        item.expression = transform(item.expression, change)
    order = [replace(key, expression=transform(key.expression, change)) for key in order]
    if numbers:
        relation = Window(relation, tuple(numbers), (*relation.columns, *numbers.values()))
    if columns:
        relation = Window(relation, tuple(columns), (*relation.columns, *columns.values()))
    return relation, items, order


def _is_group_number(expression: Expression) -> TypeGuard[WindowCall]:
    """Whether it is the number of a group that `over_groups` made. Calls that a query contains have a position."""
    return (
        isinstance(expression, WindowCall)
        and expression.call.function.name == "dense_rank"
        and expression.call.position is None
    )
