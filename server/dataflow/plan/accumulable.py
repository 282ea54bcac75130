"""Sums and counts by key, from which aggregates are computed, and the amount that a change adds to each."""

from __future__ import annotations

from dataclasses import replace

from protocol.pgwire.types import BOOL, INT8, NUMERIC, NUMERIC_PRECISION_MAX
from server.sql.columns import NewColumns
from server.sql.conditions import all_of
from server.sql.expressions import Aggregate, Call, Column, ColumnRef, Expression, precision
from server.sql.functions import syntax
from server.sql.functions.aggregates import from_totals
from server.sql.functions.table import Function

_MINUS_OR_PLUS = "CASE WHEN {0} > 0 THEN CAST({1} AS DECIMAL(38,%d)) ELSE -CAST({1} AS DECIMAL(38,%d)) END"


class Totals:
    """The sums and counts by group from which aggregates are computed.

    `columns`: the sums and counts, the number of rows first. `changes`: for each of them what a row adds to it.
    `counts`: by branch given to `result`, the only column that its rows change, if all calls count them, else None.
    """

    def __init__(self, diff: Expression, new: NewColumns, branch: Expression | None = None) -> None:
        """`diff`: 1 for an insertion, -1 for a retraction. `branch`: a condition for the rows to add, if not all."""
        self._diff = diff
        self._new = new
        self._numbers: list[tuple[tuple[object, ...], Column]] = []
        self.columns: list[Column] = [new.column("", self._diff)]
        self._branch = branch
        self.counts: dict[Expression, Column | None] = {}
        self.changes: list[Expression] = [self._diff if branch is None else _when(branch, self._diff, "0L")]

    def result(self, call: Aggregate, branch: Expression | None = None) -> Expression:
        """The result of an aggregate call as an expression over `columns`. `branch`: instead of the constructor's."""
        branch = self._branch if branch is None else branch
        counted: list[Expression] = [] if call.filter is None else [call.filter]
        if call.arguments and call.arguments[0].nullable:
            counted.append(Call(syntax.IS_NOT_NULL, (call.arguments[0],), BOOL, False))
        if not counted and branch is self._branch:
            test, count = branch, self.columns[0]
        else:
            test = all_of(counted if branch is None else [branch, *counted])
            assert test is not None
            count = self._number(("count", test), _when(test, self._diff, "0L"))
        if branch is not None and branch is not self._branch:
            self.counts[branch] = count if call.function.name == "count" and self.counts.get(branch, count) else None
        total = count
        if call.function.name != "count":
            change, zero = self._signed(call.arguments[0])
            if test is not None:
                change = _when(test, change, zero)
            total = self._number(("sum", call.arguments, test), change)
        form = Function("result", (), call.type, lambda args, texts: from_totals(call, texts[0], texts[1]))
        return Call(form, (ColumnRef(total), ColumnRef(count)), call.type, call.nullable, call.precision)

    def _signed(self, value: Expression) -> tuple[Expression, str]:
        """The amount that a row's value adds to an exact sum, and the SQL of a zero of the sum's type."""
        if value.type.name in ("int2", "int4"):  # sums of up to 2**32 values fit into a bigint
            form = Function("signed", (), INT8, "(CAST({1} AS BIGINT) * {0})")
            return Call(form, (self._diff, value), INT8, False), "0L"
        scale = value.type.scale or 0
        type = replace(NUMERIC, scale=scale)
        form = Function("signed", (), type, _MINUS_OR_PLUS % (scale, scale))
        return Call(form, (self._diff, value), type, False, NUMERIC_PRECISION_MAX), f"CAST(0 AS DECIMAL(38,{scale}))"

    def _number(self, what: tuple[object, ...], change: Expression) -> Column:
        known = next((column for other, column in self._numbers if other == what), None)
        if known is not None:
            return known
        column = self._new.column("", change)
        self._numbers.append((what, column))
        self.columns.append(column)
        self.changes.append(change)
        return column


def held_or_change(held: Column, change: Expression) -> Expression:
    """The total of a row with old state (`held`), or what a row with a change adds."""
    return Call(syntax.COALESCE, (ColumnRef(held), change), held.type, False, held.precision)


def _when(test: Expression, value: Expression, zero: str) -> Expression:
    form = Function("when", (), value.type, f"IF({{0}}, {{1}}, {zero})")
    return Call(form, (test, value), value.type, False, precision(value) if value.type.name == "numeric" else 0)
