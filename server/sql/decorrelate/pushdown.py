"""Computes an inner query for its whole domain at once, by adding the domain's columns to each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL
from server.sql.columns import NewColumns, names_any, substituted
from server.sql.conditions import all_of, same
from server.sql.decorrelate.domain import Domain
from server.sql.decorrelate.limits import numbered_limit
from server.sql.expressions import Call, Column, ColumnRef, Literal, SortKey
from server.sql.functions import syntax
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Recursive,
    RecursiveRows,
    Relation,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
    exactly,
    joined,
)

Node = TypeVar("Node")


def pushed(relation: Relation, domain: Domain, new: NewColumns) -> tuple[Relation, tuple[Column, ...]]:
    """The relation's rows for each combination of the domain, and the domain's columns in them."""
    if not domain.outer:
        return relation, ()
    return _Pushdown(domain, new).pushed(relation)


def not_supported(what: str, *, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported", hint=hint)


class _Pushdown:
    """Adds the columns of a domain to the nodes of one inner query."""

    def __init__(self, domain: Domain, new: NewColumns) -> None:
        self._domain = domain.relation
        self._outer = domain.outer
        self._ids = {column.id for column in domain.outer}
        self._new = new

    def pushed(self, node: Relation) -> tuple[Relation, tuple[Column, ...]]:
        """The node's rows for each combination, and the domain's columns in them. Other columns keep their ids."""
        if not self._depends(node):
            domain = self._domain()
            return joined(JoinKind.CROSS, domain, node, None), domain.columns
        match node:
            case Values():
                return self._values(node)
            case Project(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                expressions = (*refs, *self._swapped(node.expressions, carried))
                return Project(below, (*carried, *node.columns), expressions), carried
            case Filter(input=input):
                below, carried = self.pushed(input)
                return Filter(below, self._swapped(node.predicate, carried)), carried
            case Unnest(input=input):
                below, carried = self.pushed(input)
                added = node.columns[len(input.columns) :]
                arrays = self._swapped(node.arrays, carried)
                return replace(node, input=below, arrays=arrays, columns=(*below.columns, *added)), carried
            case Join():
                return self._join(node)
            case AggregateNode():
                return self._aggregate(node)
            case Window(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                calls = self._swapped(node.calls, carried)
                calls = tuple(replace(call, partition=(*refs, *call.partition)) for call in calls)
                added = node.columns[len(input.columns) :]
                return Window(below, calls, (*below.columns, *added)), carried
            case Distinct(input=input):
                below, carried = self.pushed(input)
                return Distinct(exactly(below, (*carried, *input.columns))), carried
            case DistinctOn(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                keys, order = self._swapped(node.keys, carried), self._swapped(node.order, carried)
                order = tuple(SortKey(ref, False, False) for ref in refs) + (order or ())
                return DistinctOn(below, (*refs, *keys), order), carried
            case Sort(input=input):
                return self.pushed(input)  # the order has no effect without LIMIT
            case Limit():
                return self._limit(node)
            case SetOperation():
                return self._set_operation(node)
            case Recursive() | RecursiveRows():
                raise not_supported(
                    "WITH RECURSIVE that names columns of an outer query",
                    hint="Compute the recursive query for all rows in a WITH of the outer query, and join it.",
                )
        raise AssertionError(node)  # scans, samples and series name no outer columns

    def _depends(self, part: Any) -> bool:
        return names_any(part, self._ids)

    def _swapped(self, part: Node, carried: Sequence[Column]) -> Node:
        swap = {old.id: new for old, new in zip(self._outer, carried, strict=True)}
        if isinstance(part, tuple):
            return tuple(substituted(item, swap) for item in part)  # type: ignore[return-value]
        return substituted(part, swap)

    def _values(self, node: Values) -> tuple[Relation, tuple[Column, ...]]:
        """Each row becomes a projection of the domain; several rows become a UNION ALL of these."""
        branches: list[Relation] = []
        for row in node.rows:
            domain = self._domain()
            refs = tuple(ColumnRef(c) for c in domain.columns)
            cells = self._swapped(row, domain.columns)
            columns = node.columns
            if branches:
                columns = tuple(self._new.column(c.name, ColumnRef(c)) for c in columns)
            branches.append(Project(domain, (*domain.columns, *columns), (*refs, *cells)))
        result = branches[0]
        for branch in branches[1:]:
            columns = tuple(self._new.column(c.name, ColumnRef(c)) for c in result.columns)
            result = SetOperation(SetKind.UNION, True, result, branch, columns)
        width = len(self._outer)
        if len(branches) > 1:
            keys, rest = result.columns[:width], result.columns[width:]
            expressions = tuple(ColumnRef(c) for c in result.columns)
            result = Project(result, (*keys, *node.columns), expressions)
            assert len(rest) == len(node.columns)
        return result, result.columns[:width]

    def _join(self, node: Join) -> tuple[Relation, tuple[Column, ...]]:
        if node.lateral:
            left, carried = self.pushed(node.left)
            right = self._swapped(node.right, carried)
            condition = None if node.condition is None else self._swapped(node.condition, carried)
            return joined(node.kind, left, right, condition, lateral=True), carried
        needs_left = self._depends(node.left) or node.kind not in (JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT)
        needs_right = self._depends(node.right) or node.kind in (JoinKind.RIGHT, JoinKind.FULL)
        if not needs_left and not needs_right:
            needs_left = True
        left, right, condition = node.left, node.right, node.condition
        pairs: list[tuple[Column, Column]] = []
        left_carried: tuple[Column, ...] = ()
        right_carried: tuple[Column, ...] = ()
        if needs_left:
            left, left_carried = self.pushed(left)
        if needs_right:
            right, right_carried = self.pushed(right)
        if needs_left and needs_right:
            pairs = list(zip(left_carried, right_carried, strict=True))
        carried = right_carried if node.kind is JoinKind.RIGHT or not needs_left else left_carried
        if condition is not None:
            condition = self._swapped(condition, carried)
        if pairs:
            condition = same(pairs) if condition is None else all_of([condition, same(pairs)])
        join = joined(node.kind, left, right, condition)
        if node.kind is not JoinKind.FULL:
            return join, carried
        known = {c.id: c for c in join.columns}
        merged = [
            Call(syntax.COALESCE, (ColumnRef(known[a.id]), ColumnRef(known[b.id])), a.type, True, a.precision)
            for a, b in pairs
        ]
        keys = tuple(self._new.column("", e) for e in merged)
        rest = tuple(known[c.id] for c in node.columns)
        return Project(join, (*keys, *rest), (*merged, *(ColumnRef(c) for c in rest))), keys

    def _aggregate(self, node: AggregateNode) -> tuple[Relation, tuple[Column, ...]]:
        """Without GROUP BY, every combination has a row, even if it has no input rows: hence a LEFT JOIN first."""
        below, carried = self.pushed(node.input)
        keys, calls = self._swapped(node.keys, carried), self._swapped(node.calls, carried)
        if not node.keys:
            domain = self._domain()
            mark = self._new.column("mark", Literal(None, BOOL))
            refs = tuple(ColumnRef(c) for c in below.columns)
            marked = Project(below, (*below.columns, mark), (*refs, Literal(True, BOOL)))
            pairs = list(zip(domain.columns, carried, strict=True))
            below = joined(JoinKind.LEFT, domain, marked, same(pairs))
            is_there = Call(syntax.IS_NOT_NULL, (ColumnRef(mark),), BOOL, False)
            calls = tuple(
                replace(call, filter=all_of([is_there] if call.filter is None else [is_there, call.filter]))
                for call in calls
            )
            carried = domain.columns
        refs = tuple(ColumnRef(c) for c in carried)
        groups = tuple(self._new.column("", ref) for ref in refs)
        return AggregateNode(below, (*refs, *keys), calls, (*groups, *node.columns)), groups

    def _limit(self, node: Limit) -> tuple[Relation, tuple[Column, ...]]:
        if isinstance(node.input, Project):  # a projection commutes with LIMIT
            return self.pushed(replace(node.input, input=replace(node, input=node.input.input)))
        input = node.input
        order = input.keys if isinstance(input, Sort) else ()
        below, carried = self.pushed(input.input if isinstance(input, Sort) else input)
        if self._depends((node.limit, node.offset)):
            raise not_supported(
                "LIMIT that depends on an outer query",
                hint="Number the rows with row_number() in the subquery, and compare the number with the limit.",
            )
        ordered: Relation = Sort(below, self._swapped(order, carried)) if order else below
        return numbered_limit(Limit(ordered, node.limit, node.offset), self._new, carried), carried

    def _set_operation(self, node: SetOperation) -> tuple[Relation, tuple[Column, ...]]:
        sides = []
        for side in (node.left, node.right):
            below, carried = self.pushed(side)
            sides.append(exactly(below, (*carried, *side.columns)))
        keys = tuple(self._new.column("", ColumnRef(c)) for c in sides[0].columns[: len(self._outer)])
        return replace(node, left=sides[0], right=sides[1], columns=(*keys, *node.columns)), keys
