"""Passes rows from operator to operator as their fields: what operators keep has the types of columns of tables.

    SELECT DISTINCT t FROM t

becomes ROW(a, b) of the rows of SELECT DISTINCT a, b FROM t. Two rows are equal if their fields are, where NULL equals
NULL, as for DISTINCT and GROUP BY of columns. The row of a table that an outer join has filled with NULLs is NULL. It
is determined by its fields, too, which are all NULL.

A plan remains unchanged if an operator passes on a row that is not a ROW(...), or if the fields of the rows on the two
sides of a UNION have different types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.pgwire.types import BOOL, is_row
from server.sql.columns import NewColumns, with_values
from server.sql.expressions import Call, Case, Column, ColumnRef, Expression, Literal, SortKey, transform, walk
from server.sql.functions import syntax
from server.sql.functions.records import FIELD, ROW
from server.sql.functions.syntax import conjuncts
from server.sql.relations import (
    Aggregate,
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Relation,
    SetOperation,
    Sort,
    Unnest,
    Window,
    joined,
    only,
)


class _NotSplit(Exception):
    """A row has no known fields."""


@dataclass(frozen=True, slots=True)
class _Split:
    """A relation without its columns that are rows. `rows`: by column id, the row over the other columns."""

    relation: Relation
    rows: dict[int, Expression]

    def over(self, expression: Any) -> Any:
        """An expression over the original columns as one over those of `relation`."""
        return transform(with_values(expression, self.rows), _selected) if self.rows else expression


def rows_split(relation: Relation) -> Relation:
    """The relation, whose operators pass the fields of rows to each other instead of the rows."""
    if not any(isinstance(node, Call) and node.function is ROW for node in walk(relation)):
        return relation
    try:
        split = _Splitter(relation).split(relation)
    except _NotSplit:
        return relation
    columns = relation.columns
    if not split.rows:
        return only(split.relation, columns)
    return Project(split.relation, columns, tuple(split.over(ColumnRef(column)) for column in columns))


class _Splitter:
    def __init__(self, root: Relation) -> None:
        self._new = NewColumns(root)

    def split(self, node: Relation) -> _Split:
        match node:
            case Project():
                below = self.split(node.input)
                taken = _SplitColumns(self._new)
                for column, expression in zip(node.columns, node.expressions, strict=True):
                    taken.add(column, below.over(expression))
                return _Split(Project(below.relation, *taken.columns_and_expressions), taken.rows)
            case Filter():
                below = self.split(node.input)
                return replace(below, relation=Filter(below.relation, below.over(node.predicate)))
            case Distinct() | Limit():
                below = self.split(node.input)
                return replace(below, relation=replace(node, input=below.relation))
            case Sort():
                below = self.split(node.input)
                return replace(below, relation=Sort(below.relation, self._order(below, node.keys)))
            case DistinctOn():
                below = self.split(node.input)
                order = self._order(below, node.order)
                return replace(below, relation=DistinctOn(below.relation, self._keys(below, node.keys), order))
            case Aggregate():
                below = self.split(node.input)
                taken = _SplitColumns(self._new)
                for column, key in zip(node.columns, node.keys, strict=False):
                    taken.add(column, below.over(key))
                columns, keys = taken.columns_and_expressions
                calls = tuple(map(below.over, node.calls))
                columns = (*columns, *node.columns[len(node.keys) :])
                return _Split(Aggregate(below.relation, keys, calls, columns), taken.rows)
            case Window():
                below = self.split(node.input)
                calls = tuple(
                    replace(
                        below.over(call),
                        partition=self._keys(below, call.partition),
                        order=self._order(below, call.order),
                    )
                    for call in node.calls
                )
                added = node.columns[len(node.input.columns) :]
                return replace(below, relation=Window(below.relation, calls, (*below.relation.columns, *added)))
            case Unnest():
                below = self.split(node.input)
                added = node.columns[len(node.input.columns) :]
                arrays = tuple(map(below.over, node.arrays))
                columns = (*below.relation.columns, *added)
                return replace(below, relation=replace(node, input=below.relation, arrays=arrays, columns=columns))
            case Join():
                return self._join(node)
            case SetOperation():
                return self._set_operation(node)
        return _Split(node, {})

    def _join(self, node: Join) -> _Split:
        left, right = self.split(node.left), self.split(node.right)
        if left.rows and node.kind in (JoinKind.RIGHT, JoinKind.FULL):
            raise _NotSplit  # a row of NULLs would not be NULL
        if right.rows and node.kind in (JoinKind.LEFT, JoinKind.FULL):
            raise _NotSplit
        rows = left.rows | right.rows
        condition = None if node.condition is None else _Split(node, rows).over(node.condition)
        relation = joined(node.kind, left.relation, right.relation, condition, lateral=node.lateral)
        return _Split(relation, rows)

    def _set_operation(self, node: SetOperation) -> _Split:
        left, right = self.split(node.left), self.split(node.right)
        columns: list[Column] = []
        rows: dict[int, Expression] = {}
        sides: tuple[list[Column], list[Column]] = [], []
        for column, one, other in zip(node.columns, node.left.columns, node.right.columns, strict=True):
            if one.id not in left.rows and other.id not in right.rows:
                columns.append(column)
                sides[0].append(one)
                sides[1].append(other)
                continue
            row = left.over(ColumnRef(one))
            fields = [_columns_of(row), _columns_of(right.over(ColumnRef(other)))]
            if [c.type for c in fields[0]] != [c.type for c in fields[1]]:
                raise _NotSplit
            new = [replace(self._new.column("", ColumnRef(c)), nullable=True) for c in fields[0]]
            rows[column.id] = with_values(row, {c.id: ColumnRef(n) for c, n in zip(fields[0], new, strict=True)})
            columns += new
            sides[0].extend(fields[0])
            sides[1].extend(fields[1])
        inputs = only(left.relation, sides[0]), only(right.relation, sides[1])
        return _Split(replace(node, left=inputs[0], right=inputs[1], columns=tuple(columns)), rows)

    def _keys(self, below: _Split, keys: Sequence[Expression]) -> tuple[Expression, ...]:
        """Keys that are equal wherever `keys` are."""
        return tuple(part for key in keys for part in _fields(below.over(key)))

    def _order(self, below: _Split, keys: Sequence[SortKey]) -> tuple[SortKey, ...]:
        """The order by the fields of rows, of which NULL is the greatest."""
        found: list[SortKey] = []
        for key in keys:
            fields = _fields(below.over(key.expression))
            if len(fields) == 1:
                found.append(replace(key, expression=fields[0]))
            elif key.nulls_first != key.descending:
                found.append(replace(key, expression=below.over(key.expression)))
            else:
                found += [replace(key, expression=field) for field in fields]
        return tuple(found)


class _SplitColumns:
    """The columns of a node, of which those that are rows are replaced by columns with their fields."""

    def __init__(self, new: NewColumns) -> None:
        self._new = new
        self._columns: list[Column] = []
        self._expressions: list[Expression] = []
        self.rows: dict[int, Expression] = {}

    @property
    def columns_and_expressions(self) -> tuple[tuple[Column, ...], tuple[Expression, ...]]:
        return tuple(self._columns), tuple(self._expressions)

    def add(self, column: Column, expression: Expression) -> None:
        if expression.type.fields is None:
            self._columns.append(column)
            self._expressions.append(expression)
        else:
            self.rows[column.id] = self._split_row(expression)

    def _split_row(self, row: Expression) -> Expression:
        """The row over new columns with its fields."""
        made = _constructor(row)
        fields = tuple(map(self._field, made.arguments))
        new = replace(made, arguments=fields)
        if row is made:
            return new
        assert isinstance(row, Case)
        null = Literal(None, row.type)
        return Case(((_all_null(fields), null),), new, row.type)

    def _field(self, field: Expression) -> Expression:
        if field.type.fields is not None:
            return self._split_row(field)
        column = self._new.column("", field)
        self._columns.append(column)
        self._expressions.append(field)
        return ColumnRef(column)


def _constructor(row: Expression) -> Call:
    """The ROW(...) that makes a row, which may be NULL if all fields are NULL. Raises _NotSplit for another row."""
    match row:
        case Call(function=function, arguments=arguments) if function is ROW and arguments:
            if any(argument.type.element is not None and is_row(argument.type) for argument in arguments):
                raise _NotSplit
            return row
        case Case(branches=((absent, Literal(value=None)),), default=Call() as made):
            tested = [test.arguments for test in conjuncts(absent) if isinstance(test, Call)]
            if _constructor(made) is made and tested == [(field,) for field in made.arguments]:
                return made
    raise _NotSplit


def _all_null(fields: Sequence[Expression]) -> Expression:
    tests = tuple(Call(syntax.IS_NULL, (field,), BOOL, False) for field in fields)
    return tests[0] if len(tests) == 1 else Call(syntax.AND, tests, BOOL, False)


def _fields(expression: Expression) -> list[Expression]:
    """The fields of a row, also those of the rows in it; the expression itself if it is no row."""
    if expression.type.fields is None:
        return [expression]
    return [field for argument in _constructor(expression).arguments for field in _fields(argument)]


def _columns_of(row: Expression) -> list[Column]:
    """The columns with the fields of a row that is never NULL."""
    if not isinstance(row, Call) or _constructor(row) is not row:
        raise _NotSplit
    found: list[Column] = []
    for field in row.arguments:
        found += [field.column] if isinstance(field, ColumnRef) else _columns_of(field)
    return found


def _selected(node: Any) -> Any | None:
    """The selected field if `node` selects a field of a ROW(...)."""
    if isinstance(node, Call) and node.function is FIELD:
        row, number = node.arguments
        row = transform(row, _selected)
        if (isinstance(row, (Call, Case))) and isinstance(number, Literal):
            try:
                return _constructor(row).arguments[number.value]
            except _NotSplit:
                return None
    return None
