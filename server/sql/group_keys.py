"""Grouping by types of which equal values may be different values: jsonb, interval, and char without a length.

'1.0' and '1' are equal jsonb values, '1 month' and '30 days' equal intervals. Spark would put them into different
groups. The rows are grouped by a key instead, which is the same for equal values, and the output is any value of the
group:

    GROUP BY j                        GROUP BY key(j), any_value(j)
    DISTINCT, UNION                   the same, over all columns
    DISTINCT ON (j), PARTITION BY j   key(j)
    count(DISTINCT j)                 count(DISTINCT key(j))
    INTERSECT, EXCEPT                 GROUP BY key(j) over the rows of both sides, and the number of rows of each side
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from protocol.pgwire.types import BOOL, BYTEA, INT4, INT8, INTERVAL, JSONB, TEXT, PgType, is_row, row_type
from server.sql.conditions import above_zero, filtered
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import (
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    Literal,
    WindowCall,
    transform,
    walk,
)
from server.sql.functions.aggregates import COUNT_VALUES, ORDER_FREE
from server.sql.functions.intervals import length_of
from server.sql.functions.json import JSONB_SORT_KEY
from server.sql.functions.records import ROW, field_of
from server.sql.functions.syntax import IS_NULL, NOT
from server.sql.functions.table import FUNCTIONS
from server.sql.relations import Aggregate, Distinct, DistinctOn, Project, Relation, SetKind, SetOperation


def needs_key(type: PgType) -> bool:
    """Whether equal values of the type may be different values."""
    if type.fields is not None:
        return any(needs_key(field) for _, field in type.fields)
    return type in (JSONB, INTERVAL) or (type.name == "bpchar" and type.length is None)


def has_key(type: PgType) -> bool:
    """Whether equal values of a row, or an array of rows, have equal keys."""
    element = type.element or type
    if type.element is not None and needs_key(element):
        return False
    return all(not is_row(field) or has_key(field) for _, field in element.fields or ())


def key_of(value: Expression) -> Expression:
    """An expression that is equal for equal values, also in Spark; the value itself for all other types."""
    if value.type.fields is not None and needs_key(value.type):
        keys = tuple(key_of(field_of(value, number)) for number, _ in enumerate(value.type.fields))
        type = row_type([name for name, _ in value.type.fields], [key.type for key in keys])
        absent = Call(IS_NULL, (value,), BOOL, False)
        return Case(((absent, Literal(None, type)),), Call(ROW, keys, type, False), type)
    if value.type == JSONB:
        return Call(JSONB_SORT_KEY, (value,), BYTEA, value.nullable)
    if value.type == INTERVAL:
        return length_of(value)
    return Cast(value, TEXT) if needs_key(value.type) else value


def grouped_by_keys(relation: Relation) -> Relation:
    """An equivalent relation that groups by keys where values need them. INTERSECT ALL and EXCEPT ALL are unchanged."""
    ids = count(1 + max((c.id for node in walk(relation) for c in _columns(node)), default=0))
    return transform(relation, _Rewriter(ids).changed)


def _columns(node: Any) -> Sequence[Column]:
    element = getattr(node, "element", None)
    bound = (element,) if isinstance(element, Column) else ()
    return [*getattr(node, "columns", ()), *getattr(node, "holders", ()), *bound]


def _is_grouped(node: Any) -> bool:
    match node:
        case Aggregate(keys=keys) | DistinctOn(keys=keys):
            return any(needs_key(key.type) for key in keys)
        case WindowCall(partition=partition):
            return any(needs_key(key.type) for key in partition)
        case Distinct() | SetOperation(all=False):
            return any(needs_key(column.type) for column in node.columns)
        case AggregateCall(distinct=True):
            return node.function.name == "count" and any(needs_key(a.type) for a in node.arguments)
    return False


class _Rewriter:
    def __init__(self, ids: count[int]) -> None:
        self._ids = ids

    def changed(self, node: Any) -> Any | None:
        if not _is_grouped(node):
            return None
        inner = transform(node, lambda part: None if part is node else self.changed(part))
        match inner:
            case Aggregate():
                return self._aggregate(inner)
            case Distinct(input=input):
                return self._distinct(input, input.columns)
            case SetOperation(kind=SetKind.UNION):
                return self._distinct(replace(inner, all=True), inner.columns)
            case SetOperation():
                return self._compared(inner)
            case DistinctOn(keys=keys):
                return replace(inner, keys=tuple(map(key_of, keys)))
            case WindowCall(partition=partition):
                return replace(inner, partition=tuple(map(key_of, partition)))
        return replace(inner, arguments=tuple(map(key_of, inner.arguments)))

    def _distinct(self, input: Relation, columns: tuple[Column, ...]) -> Relation:
        """The distinct rows of the input. `columns`: its output columns, which the result has, too."""
        below = tuple(replace(column, id=next(self._ids)) for column in columns)
        renamed = Project(input, below, tuple(ColumnRef(column) for column in input.columns))
        keys = tuple(ColumnRef(column) for column in below)
        return self._aggregate(Aggregate(renamed, keys, (), columns))

    def _compared(self, node: SetOperation) -> Relation:
        """The rows of INTERSECT or EXCEPT: of the groups of both sides, those with rows on the left side."""
        below = tuple(replace(column, id=next(self._ids)) for column in node.columns)
        marks = tuple(Column(next(self._ids), "", INT4, True) for _ in range(2))
        one, none = Literal(1, INT4), Literal(None, INT4)
        left, right = (
            Project(
                side,
                tuple(replace(column, id=next(self._ids)) for column in (*below, *marks)),
                (*map(ColumnRef, side.columns), *of_side),
            )
            for side, of_side in ((node.left, (one, none)), (node.right, (none, one)))
        )
        rows = SetOperation(SetKind.UNION, True, left, right, (*below, *marks))
        counts = tuple(Column(next(self._ids), "count", INT8, False) for _ in marks)
        calls = tuple(AggregateCall(COUNT_VALUES, (ColumnRef(mark),), INT8, False) for mark in marks)
        groups = self._aggregate(Aggregate(rows, tuple(map(ColumnRef, below)), calls, (*node.columns, *counts)))
        is_left, is_right = map(above_zero, counts)
        other = Call(NOT, (is_right,), BOOL, False) if node.kind is SetKind.EXCEPT else is_right
        return Project(filtered(groups, (is_left, other)), node.columns, tuple(map(ColumnRef, node.columns)))

    def _aggregate(self, node: Aggregate) -> Relation:
        """The aggregate grouped by keys. Its output columns have the same ids as before."""
        width = len(node.keys)
        keyed = [number for number, key in enumerate(node.keys) if needs_key(key.type)]
        keys, columns = list(node.keys), list(node.columns)
        shown: list[Expression] = [ColumnRef(column) for column in columns]
        calls: list[AggregateCall] = []
        for number in keyed:
            keys[number] = key_of(node.keys[number])
            digits = 38 if keys[number].type.name == "numeric" else 0
            columns[number] = Column(next(self._ids), "key", keys[number].type, True, digits)
            value = node.columns[number]
            calls.append(AggregateCall(_ANY_VALUE, (node.keys[number],), value.type, value.nullable))
            value = replace(value, id=next(self._ids))
            columns.append(value)
            shown[number] = ColumnRef(value)
        grouped = Aggregate(node.input, tuple(keys), (*node.calls, *calls), tuple(columns))
        assert len(grouped.columns) == width + len(grouped.calls)
        return Project(grouped, node.columns, tuple(shown))


(_PLAIN_ANY_VALUE,) = FUNCTIONS["any_value"]
_ANY_VALUE = ORDER_FREE[_PLAIN_ANY_VALUE]  # the same value of each group in every computation
