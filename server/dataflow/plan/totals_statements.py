"""The statements of an `AccumulableAggregate`, which computes aggregates from `accumulable.Totals`: S' = S + Σ change.

A statement returns one row for each key and version: the results, the new state (the key and the totals), the version,
and the version at which the next row of the key replaces the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol.pgwire.types import BOOL, INT8
from server.dataflow.plan.accumulable import Totals, held_or_change
from server.dataflow.plan.extremes import CallValues
from server.sql.columns import NewColumns
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, SortKey, WindowCall
from server.sql.functions.table import OPERATORS, Function, Kind
from server.sql.relations import Aggregate, Filter, Project, Relation, Scan, Window, only
from server.sql.versioned_plan import carried

_UNEQUAL = next(f for f in OPERATORS["<>"] if f.arguments == (INT8, INT8))
_ZERO = Literal(0, INT8)
_ONE = Literal(1, INT8)
_SUM = Function("sum", (), INT8, "sum({0}){f}", Kind.AGGREGATE)
_NEXT_OF_ONE = Function("next", (), INT8, "IF({0} = 0L, 1L, NULL)")  # version 0 is the old state, 1 the only new one
_LEAD = Function("lead", (), INT8, "lead({0}){f}", Kind.WINDOW)
_UP_TO = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True, slots=True)
class TotalsStatement:
    """One statement. `counts`: `DistinctBranch.count` by the number of the branch."""

    relation: Relation
    state: tuple[Column, ...]
    counts: dict[int, int]


class TotalsStatements:
    """Makes the statements for the aggregates of `base`, with the linear nodes above it up to `relation`."""

    def __init__(self, base: Aggregate, relation: Relation, values: CallValues, new: NewColumns) -> None:
        self._base = base
        self._relation = relation
        self._values = values
        self._new = new

    def over_rows(self, scan: Scan) -> TotalsStatement:
        """The statement for hydration, which reads the rows of the input once each."""
        return self._statement(scan, None, _ONE, ())

    def over_changes(
        self,
        scan: Scan,
        version: Column,
        diff: Expression,
        is_branch: Sequence[Expression],
        *,
        one_version: bool = False,
    ) -> TotalsStatement:
        """The statement for steps, which reads the rows that `AccumulableAggregate` describes.

        `is_branch`: for each branch a condition that selects its rows. `one_version`: the step has only one version, so
        that there are no running totals.
        """
        return self._statement(scan, version, diff, is_branch, one_version=one_version)

    def _statement(
        self,
        scan: Scan,
        version: Column | None,
        diff: Expression,
        is_branch: Sequence[Expression],
        *,
        one_version: bool = False,
    ) -> TotalsStatement:
        base, new = self._base, self._new
        totals = Totals(diff, new, is_branch[0] if len(is_branch) > 1 else None)
        results, extremes = self._results(totals, is_branch)
        counts = _counts(totals, is_branch)
        changes = [_ZERO if number in counts.values() else change for number, change in enumerate(totals.changes)]
        if is_branch:
            held = tuple(new.column("", ColumnRef(column)) for column in totals.columns)
            scan = replace(scan, columns=(*scan.columns, *held))
            changes = [held_or_change(old, change) for old, change in zip(held, changes, strict=True)]
        partial = tuple(new.column("", ColumnRef(column)) for column in totals.columns)
        sums = tuple(
            AggregateCall(_SUM, (change,), column.type, False, column.precision)
            for column, change in zip(totals.columns, changes, strict=True)
        )
        calls, looked_up = (*sums, *extremes.values()), tuple(extremes)
        keys, state_keys = (tuple(new.column("", key) for key in base.keys) for _ in range(2))
        refs, v, next = tuple(map(ColumnRef, keys)), self._bigint(), self._bigint()
        if version is None:
            grouped: Relation = Aggregate(scan, base.keys, calls, (*keys, *totals.columns, *looked_up))
            version_and_next: tuple[Expression, ...] = (_ONE, Literal(None, INT8))
        else:
            at = self._bigint()
            sum_columns = totals.columns if one_version else partial
            of_version = Aggregate(scan, (*base.keys, ColumnRef(version)), calls, (*keys, at, *sum_columns, *looked_up))
            if one_version:
                grouped = of_version
                version_and_next = (ColumnRef(at), Call(_NEXT_OF_ONE, (ColumnRef(at),), INT8, True))
            else:
                following = self._bigint()
                grouped = _running_totals(of_version, refs, at, partial, totals.columns, following)
                version_and_next = (ColumnRef(at), ColumnRef(following))
        if base.keys:  # a group without rows has no result
            grouped = Filter(grouped, Call(_UNEQUAL, (ColumnRef(totals.columns[0]), _ZERO), BOOL, False))
        state = (*state_keys, *totals.columns)
        more = (*state, v, next)
        rows = Project(
            grouped,
            (*base.columns, *more),
            (*refs, *results, *refs, *map(ColumnRef, totals.columns), *version_and_next),
        )
        relation = only(carried(self._relation, base, rows, more), (*self._relation.columns, *more))
        return TotalsStatement(relation, state, counts)

    def _results(
        self, totals: Totals, is_branch: Sequence[Expression]
    ) -> tuple[list[Expression], dict[Column, AggregateCall]]:
        """The results of the calls, and the min and max calls by the column of their result.

        Adds to `totals` what the other calls need.
        """
        values = self._values
        results: list[Expression] = []
        extremes: dict[Column, AggregateCall] = {}
        for call, (number, value) in zip(self._base.calls, values.branch_of, strict=True):
            if value is None:
                results.append(totals.result(call))
                continue
            plain = replace(call, arguments=(ColumnRef(value),), distinct=False, filter=None)
            if number <= len(values.distinct):
                results.append(totals.result(plain, is_branch[number]))
            else:
                column = self._new.column("", call)
                extremes[column] = replace(plain, filter=is_branch[number]) if is_branch else plain
                results.append(ColumnRef(column))
        return results, extremes

    def _bigint(self) -> Column:
        return self._new.column("", _ZERO)


def _counts(totals: Totals, is_branch: Sequence[Expression]) -> dict[int, int]:
    """The number of the only total that the rows of a branch change, by branch."""
    numbers = {column: number for number, column in enumerate(totals.columns)}
    return {
        number: numbers[count]
        for number, branch in enumerate(is_branch)
        if (count := totals.counts.get(branch)) is not None
    }


def _running_totals(
    of_version: Aggregate,
    keys: Sequence[Expression],
    version: Column,
    partial: Sequence[Column],
    totals: Sequence[Column],
    next: Column,
) -> Window:
    """For each key and version: the sums of `partial` over the versions up to it, and the key's next version."""
    order = (SortKey(ColumnRef(version), False, False),)
    calls = []
    for part, total in zip(partial, totals, strict=True):
        sum = AggregateCall(_SUM, (ColumnRef(part),), total.type, False, total.precision)
        calls.append(WindowCall(sum, tuple(keys), order, _UP_TO))
    lead = AggregateCall(_LEAD, (ColumnRef(version),), INT8, True)
    calls.append(WindowCall(lead, tuple(keys), order, ""))
    return Window(of_version, tuple(calls), (*of_version.columns, *totals, next))
