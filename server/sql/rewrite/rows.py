"""Passes rows from operator to operator as their fields: what operators keep has the types of columns of tables.

    SELECT DISTINCT t FROM t

becomes ROW(a, b) of the rows of SELECT DISTINCT a, b FROM t. Two rows are equal if their fields are, where NULL equals
NULL, as for DISTINCT and GROUP BY of columns. The row of a table that an outer join has filled with NULLs is NULL. It
is determined by its fields, too, which are all NULL.

A CASE or COALESCE of rows becomes a CASE for each field, and a column that is true where the row is NULL:

    CASE WHEN c THEN t END    is    CASE WHEN c THEN a END, CASE WHEN c THEN b END, CASE WHEN c THEN false ELSE true END

count(DISTINCT t) becomes count(*) of the distinct fields, joined with the other aggregates by the keys of the groups.

A plan remains unchanged if an operator passes on a row whose fields are not known, such as an element of an array, or
if the fields of the rows on the two sides of a UNION have different types or one side can be NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.pgwire.types import BOOL, is_row
from server.sql.columns import NewColumns, with_values
from server.sql.conditions import all_of, same
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Call, Case, Column, ColumnRef, Expression, Literal, SortKey, transform, walk
from server.sql.functions import syntax
from server.sql.functions.records import FIELD, ROW
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

CHOICES_MAX = 10_000
"""The size of the conditions of a CASE of rows, multiplied by the number of fields, of which each has a CASE."""
_TRUE, _FALSE = Literal(True, BOOL), Literal(False, BOOL)


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
                return _Split(self._aggregate(Aggregate(below.relation, keys, calls, columns)), taken.rows)
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

    def _aggregate(self, node: Aggregate) -> Relation:
        """The aggregate, whose count(DISTINCT row) are counts of distinct fields."""
        apart = [n for n, call in enumerate(node.calls, len(node.keys)) if _counts_rows(call)]
        if not apart:
            return node
        kept = [n for n in range(len(node.columns)) if n not in apart]
        calls = tuple(node.calls[n - len(node.keys)] for n in kept if n >= len(node.keys))
        result: Relation | None = None
        if calls:
            result = Aggregate(node.input, node.keys, calls, tuple(node.columns[n] for n in kept))
        for n in apart:
            result = self._with_count(result, node, node.calls[n - len(node.keys)], node.columns[n])
        assert result is not None
        return only(result, node.columns)

    def _with_count(self, others: Relation | None, node: Aggregate, call: AggregateCall, counted: Column) -> Relation:
        """The groups with other calls, joined with those of `node` with a count(DISTINCT row), which is `counted`."""
        taken = _SplitColumns(self._new)
        keys = [self._new.column("", key) for key in node.keys]
        for column, key in zip(keys, node.keys, strict=True):
            taken.add(column, key)
        row = self._new.column("", call.arguments[0])
        taken.add(row, call.arguments[0])
        _, absent = _parts(taken.rows[row.id])
        conditions: list[Expression] = [] if absent is None else [Call(syntax.NOT, (absent,), BOOL, False)]
        if call.filter is not None:
            condition = self._new.column("", call.filter)
            taken.add(condition, call.filter)
            conditions.append(ColumnRef(condition))
        values = Project(node.input, *taken.columns_and_expressions)
        count = replace(call, arguments=(_TRUE,), distinct=False, filter=all_of(conditions))
        columns = node.columns[: len(keys)] if others is None else tuple(self._new.column("", key) for key in node.keys)
        counts = Aggregate(Distinct(values), tuple(map(ColumnRef, keys)), (count,), (*columns, counted))
        if others is None:
            return counts
        pairs = list(zip(others.columns, columns, strict=False))
        return joined(JoinKind.INNER, others, counts, same(pairs) if pairs else None)

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
        """The row over new columns: its fields, and whether it is NULL if the fields do not tell it."""
        fields, absent = _parts(row)
        new = tuple(map(self._field, fields))
        made = Call(ROW, new, row.type, False)
        if absent is None:
            return made
        if absent == _all_null(fields):
            return Case(((_all_null(new), Literal(None, row.type)),), made, row.type)
        column = self._new.column("", absent)
        self._columns.append(column)
        self._expressions.append(absent)
        return Case(((ColumnRef(column), Literal(None, row.type)),), made, row.type)

    def _field(self, field: Expression) -> Expression:
        if field.type.fields is not None:
            return self._split_row(field)
        column = self._new.column("", field)
        self._columns.append(column)
        self._expressions.append(field)
        return ColumnRef(column)


def _parts(row: Expression) -> tuple[tuple[Expression, ...], Expression | None]:
    """The fields of a row, and whether it is NULL. None: it never is. The fields of NULL are NULL.

    Raises _NotSplit for an expression whose fields are not known.
    """
    match row:
        case Call(function=function, arguments=arguments) if function is ROW and arguments:
            if any(argument.type.element is not None and is_row(argument.type) for argument in arguments):
                raise _NotSplit
            return arguments, None
        case Literal(value=None) if row.type.fields:
            return tuple(Literal(None, type) for _, type in row.type.fields), _TRUE
        case Case(branches=((absent, Literal(value=None)),), default=Call() as made):
            fields, never = _parts(made)
            if never is None and (isinstance(absent, ColumnRef) or absent == _all_null(fields)):
                return fields, absent
            return _chosen(row.branches, row.default)
        case Case():
            return _chosen(row.branches, row.default)
        case Call(function=syntax.COALESCE, arguments=(*firsts, last)):
            chosen: Expression = last
            for first in reversed(firsts):
                _, is_null = _parts(first)
                chosen = first if is_null is None else Case(((is_null, chosen),), first, row.type)
            return _parts(chosen)
    raise _NotSplit


def _chosen(
    branches: Sequence[tuple[Expression, Expression]], default: Expression
) -> tuple[tuple[Expression, ...], Expression | None]:
    """As `_parts`, of a CASE."""
    tests = [test for test, _ in branches]
    rows = [_parts(value) for value in (*(value for _, value in branches), default)]
    types = [[field.type for field in fields] for fields, _ in rows]
    size = sum(1 for test in tests for _ in walk(test))
    if any(of != types[-1] for of in types) or size * len(types[-1]) > CHOICES_MAX:
        raise _NotSplit

    def choice(values: Sequence[Expression]) -> Expression:
        return Case(tuple(zip(tests, values[:-1], strict=True)), values[-1], values[-1].type)

    fields = tuple(choice(values) for values in zip(*(fields for fields, _ in rows), strict=True))
    absents = [_FALSE if absent is None else absent for _, absent in rows]
    return fields, choice(absents) if any(absent is not _FALSE for absent in absents) else None


def _counts_rows(call: AggregateCall) -> bool:
    """Whether it is count(DISTINCT row)."""
    return call.function.name == "count" and call.distinct and call.arguments[0].type.fields is not None


def _all_null(fields: Sequence[Expression]) -> Expression:
    tests = tuple(Call(syntax.IS_NULL, (field,), BOOL, False) for field in fields)
    return tests[0] if len(tests) == 1 else Call(syntax.AND, tests, BOOL, False)


def _fields(expression: Expression) -> list[Expression]:
    """Expressions that are equal if, and only if, two rows are: the fields, also those of the rows in it.

    They are ordered like the rows. The expression itself if it is no row.
    """
    if expression.type.fields is None:
        return [expression]
    fields, absent = _parts(expression)
    found = [] if absent is None or absent == _all_null(fields) else [absent]
    return found + [part for field in fields for part in _fields(field)]


def _columns_of(row: Expression) -> list[Column]:
    """The columns with the fields of a row that is never NULL."""
    fields, absent = _parts(row)
    if absent is not None:
        raise _NotSplit
    found: list[Column] = []
    for field in fields:
        found += [field.column] if isinstance(field, ColumnRef) else _columns_of(field)
    return found


def _selected(node: Any) -> Any | None:
    """The selected field if `node` selects a field of a ROW(...)."""
    if isinstance(node, Call) and node.function is FIELD:
        row, number = node.arguments
        row = transform(row, _selected)
        if (isinstance(row, (Call, Case))) and isinstance(number, Literal):
            try:
                return _parts(row)[0][number.value]
            except _NotSplit:
                return None
    return None
