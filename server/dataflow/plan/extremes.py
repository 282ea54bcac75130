"""Aggregate calls that need the distinct values of a column, or its least or greatest value."""

from __future__ import annotations

from dataclasses import replace

from server.dataflow.plan.top_k import ORDERED
from server.sql.columns import NewColumns, extended
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Case, Column, ColumnRef, Expression, Literal
from server.sql.functions.aggregates import adds_up
from server.sql.relations import Aggregate


def adds_up_by_value(call: AggregateCall) -> bool:
    """Whether the result `adds_up` over the rows, or with DISTINCT over the distinct values of the argument."""
    return adds_up(replace(call, distinct=False)) and not (call.distinct and not call.arguments)


def extreme(call: AggregateCall) -> bool | None:
    """True if the result depends on the greatest value only, False if on the least value only, else None."""
    known = {"min": False, "max": True, "bool_and": False, "every": False, "bool_or": True}
    if call.function.name not in known or call.arguments[0].type.representation not in ORDERED:
        return None
    return known[call.function.name]


class CallValues:
    """The columns of which an aggregate's calls need the distinct, least or greatest values by key.

    `distinct`: columns with distinct values. `top_rows`: (column, whether the greatest value is needed). `branch_of`:
    for each call the number of its branch (see `AccumulableAggregate`) and the column; (0, None) if it is computed from
    the rows. `subsets`: the indexes in `distinct` of columns that have the same value wherever they are not NULL.
    `input`: the aggregate's input, with computed columns appended.
    """

    def __init__(self, node: Aggregate, new: NewColumns) -> None:
        self._new = new
        self._computed: dict[Expression, Column] = {}
        columns: list[Column | None] = []
        for call in node.calls:
            counted = extreme(call) is None and not call.distinct
            columns.append(None if counted else self._column(call))
        self.distinct: list[Column] = []
        values: dict[Expression, list[int]] = {}
        self.top_rows: list[tuple[Column, bool]] = []
        for call, column in zip(node.calls, columns, strict=True):
            descending = extreme(call)
            if column is not None and descending is None and column not in self.distinct:
                values.setdefault(call.arguments[0], []).append(len(self.distinct))
                self.distinct.append(column)
            elif column is not None and descending is not None and (column, descending) not in self.top_rows:
                self.top_rows.append((column, descending))
        self.branch_of: list[tuple[int, Column | None]] = []
        for call, column in zip(node.calls, columns, strict=True):
            descending, number = extreme(call), 0
            if column is not None and descending is None:
                number = 1 + self.distinct.index(column)
            elif column is not None and descending is not None:
                number = 1 + len(self.distinct) + self.top_rows.index((column, descending))
            self.branch_of.append((number, column))
        self.subsets = list(values.values())
        self.input = extended(node.input, {column: value for value, column in self._computed.items()})

    def _column(self, call: AggregateCall) -> Column:
        (value,) = call.arguments
        if call.filter is not None:
            value = Case(((call.filter, value),), Literal(None, value.type), value.type)
        if isinstance(value, ColumnRef):
            return value.column
        if value not in self._computed:
            self._computed[value] = self._new.column("", value)
        return self._computed[value]
