"""Makes the keys of groups, partitions, distinct rows, limits and joins columns of their inputs.

The keys of a join are used to find rows by hash; the join's condition is kept and is still checked. A key must be equal
wherever the operands of `=` are equal, but may also be equal elsewhere: numerics of different scales use their float8
value, char(n) its value without trailing spaces. The pass does not change joins; `keyed_join` adds their key columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from protocol.pgwire.types import BOOL, FLOAT8, TEXT, PgType
from server.sql.columns import NewColumns, extended, ids, named
from server.sql.conditions import parts
from server.sql.expressions import Call, Cast, Column, ColumnRef, Expression, Literal, WindowCall
from server.sql.functions.table import INTEGERS, OPERATORS, Function
from server.sql.relations import (
    Aggregate,
    DistinctOn,
    Join,
    Limit,
    Relation,
    Sort,
    Window,
    bottom_up,
    joined,
    only,
)

_TRIMMED = Function("rtrim", (), TEXT, "rtrim({0})")
_PLAIN = frozenset(("text", "varchar", "bool", "date", "time", "timestamp", "timestamptz", "uuid", "bytea"))


_ROW = Literal(True, BOOL)


def with_some_column(relation: Relation, new: NewColumns) -> Relation:
    """The relation itself if it has a column, otherwise the same rows with one constant column."""
    added = _Added(relation, new)
    added.some_column()
    return added.relation


class JoinKey(NamedTuple):
    left: Expression
    right: Expression


def keyed(relation: Relation) -> Relation:
    new = NewColumns(relation)

    def change(node: Relation) -> Relation:
        match node:
            case Aggregate():
                return _aggregate(node, new)
            case Window():
                return _window(node, new)
            case DistinctOn():
                return _distinct_on(node, new)
            case Limit(input=Sort() as sort):
                return _limit(node, sort, new)
        return node

    return bottom_up(relation, change)


class KeyedJoin(NamedTuple):
    """A join with its key columns. Two rows match if and only if they meet the join's condition.

    Matching rows have equal `left` and `right`, which are columns of the sides. Rows with equal keys match if they also
    meet `further_conditions`.
    """

    join: Join
    left: tuple[Column, ...]
    right: tuple[Column, ...]
    further_conditions: tuple[Expression, ...]


def keyed_join(join: Join, new: NewColumns) -> KeyedJoin:
    """The join over sides with columns for its equalities. The keys are empty if there are no equalities."""
    left, right = _Added(join.left, new), _Added(join.right, new)
    found = [(condition, key, _hashed(key)) for condition, key in _equalities(join)]
    keys = [hashed for _, _, hashed in found if hashed is not None]
    decided = [condition for condition, key, hashed in found if hashed is not None and _decides(hashed, key)]
    further_conditions = tuple(part for part in parts(join.condition) if part not in decided)
    for side in (left, right):
        side.some_column()
    lefts = tuple(left.column(key.left).column for key in keys)
    rights = tuple(right.column(key.right).column for key in keys)
    keyed_sides = joined(join.kind, left.relation, right.relation, join.condition)
    return KeyedJoin(keyed_sides, lefts, rights, further_conditions)


def splits_by_side(condition: Expression, join: Join) -> bool:
    """Whether the condition is an equality of an expression over the left side and one over the right side."""
    return any(condition == known for known, _ in _equalities(join))


def partition_keys(window: Window) -> list[Expression]:
    """The PARTITION BY expressions that all calls of the window have in common."""
    first = window.calls[0].partition
    return [key for key in first if all(key in call.partition for call in window.calls)]


def _equalities(join: Join) -> list[tuple[Expression, JoinKey]]:
    """The join's conditions that are equalities between its sides, each with its two operands."""
    left, right = ids(join.left.columns), ids(join.right.columns)
    found: list[tuple[Expression, JoinKey]] = []
    for condition in parts(join.condition):
        if not isinstance(condition, Call) or not (condition.function in OPERATORS["="] or _is_same(condition)):
            continue
        a, b = condition.arguments
        if not (named(a) and named(b)):
            continue
        if named(a) <= right and named(b) <= left:
            a, b = b, a
        if named(a) <= left and named(b) <= right:
            found.append((condition, JoinKey(a, b)))
    return found


def _is_same(call: Call) -> bool:
    return call.function.name == "<=>"


def _hashed(key: JoinKey) -> JoinKey | None:
    """Expressions that have equal bytes wherever the operands are equal; None if there are none."""
    a, b = key.left.type, key.right.type
    if {a.name, b.name} <= set(INTEGERS) or {a.name, b.name} <= {"float4", "float8"}:
        return key  # even if the widths differ
    if a.name == b.name == "bpchar":
        return JoinKey(_trimmed(key.left), _trimmed(key.right))
    if "numeric" in (a.name, b.name):
        return (
            key if a.name == b.name and a.scale == b.scale else JoinKey(_as(key.left, FLOAT8), _as(key.right, FLOAT8))
        )
    strings = ("text", "varchar")
    is_plain = a.name == b.name and a.representation in _PLAIN
    return key if is_plain or (a.name in strings and b.name in strings) else None


def _decides(hashed: JoinKey, key: JoinKey) -> bool:
    """Whether equality of the hashed expressions implies equality of the operands."""
    return hashed == key or key.left.type.name == "bpchar"


def _as(expression: Expression, type: PgType) -> Expression:
    return expression if expression.type.name == type.name else Cast(expression, type)


def _trimmed(expression: Expression) -> Expression:
    return Call(_TRIMMED, (expression,), TEXT, expression.nullable)


class _Added:
    """A relation with computed columns appended to its own."""

    def __init__(self, relation: Relation, new: NewColumns) -> None:
        self._relation = relation
        self._new = new
        self._added: dict[Column, Expression] = {}

    def column(self, expression: Expression) -> ColumnRef:
        if isinstance(expression, ColumnRef):
            return expression
        for column, known in self._added.items():
            if known == expression:
                return ColumnRef(column)
        column = self._new.column("key", expression)
        self._added[column] = expression
        return ColumnRef(column)

    def some_column(self) -> None:
        """Adds a constant column if there is none: an Arrow table needs a column to have rows."""
        if not self._relation.columns and not self._added:
            self._added[self._new.column("row", _ROW)] = _ROW

    @property
    def relation(self) -> Relation:
        return extended(self._relation, self._added)


def _aggregate(node: Aggregate, new: NewColumns) -> Relation:
    below = _Added(node.input, new)
    keys = tuple(below.column(key) for key in node.keys)
    return replace(node, input=below.relation, keys=keys)


def _window(node: Window, new: NewColumns) -> Relation:
    below = _Added(node.input, new)
    keys = partition_keys(node)
    columns = {id(key): below.column(key) for key in keys}

    def partition(call: WindowCall) -> WindowCall:
        swapped = (next((columns[id(k)] for k in keys if k == key), key) for key in call.partition)
        return replace(call, partition=tuple(swapped))

    calls = tuple(map(partition, node.calls))
    if below.relation is node.input:
        return node
    added = node.columns[len(node.input.columns) :]
    relation = Window(below.relation, calls, (*below.relation.columns, *added))
    return only(relation, node.columns)


def _distinct_on(node: DistinctOn, new: NewColumns) -> Relation:
    below = _Added(node.input, new)
    keys = tuple(below.column(key) for key in node.keys)
    return only(replace(node, input=below.relation, keys=keys), node.columns)


def _limit(node: Limit, sort: Sort, new: NewColumns) -> Relation:
    below = _Added(sort.input, new)
    keys = tuple(replace(key, expression=below.column(key.expression)) for key in sort.keys)
    return only(replace(node, input=Sort(below.relation, keys)), node.columns)
