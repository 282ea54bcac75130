"""LIMIT as a condition on row numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from protocol.pgwire.types import INT8
from server.sql.columns import NewColumns
from server.sql.conditions import filtered
from server.sql.decorrelate.native import has_subquery
from server.sql.expressions import Aggregate, Column, ColumnRef, WindowCall
from server.sql.functions.table import FUNCTIONS
from server.sql.relations import Limit, Project, Relation, Sort, Window, exactly
from server.sql.row_bounds import is_costly, within

(_ROW_NUMBER,) = FUNCTIONS["row_number"]


def numbered_limit(node: Limit, new: NewColumns, partition: tuple[Column, ...] = ()) -> Relation:
    """LIMIT as a condition on row_number() OVER (PARTITION BY `partition`)."""
    input = node.input
    if isinstance(input, Project):  # a projection commutes with LIMIT
        return replace(input, input=numbered_limit(replace(node, input=input.input), new, partition))
    order = input.keys if isinstance(input, Sort) else ()
    number = Aggregate(_ROW_NUMBER, (), INT8, False)
    call = WindowCall(number, tuple(ColumnRef(c) for c in partition), order, "")
    column = new.column("", number)
    rows = Window(input.input if isinstance(input, Sort) else input, (call,), (*input.columns, column))
    tests = within(ColumnRef(column), ColumnRef(column), node.limit, node.offset)
    kept = filtered(rows, tests)
    return exactly(Sort(kept, order) if order and not partition else kept, input.columns)


def needs_numbers(node: Any) -> bool:
    """Whether a node is a LIMIT whose bounds Spark cannot evaluate: it accepts no subqueries and few functions."""
    if not isinstance(node, Limit):
        return False
    bounds = (node.limit, node.offset)
    return has_subquery(bounds) or any(map(is_costly, bounds))
