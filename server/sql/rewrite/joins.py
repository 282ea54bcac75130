"""Join ordering: orders inner joins so that each relation has an equality with those before it and few rows result.

The number of rows of a join is estimated only from the row counts of its inputs. Equalities form classes of equal
columns, and the number of distinct values of a class is at most the row count of the smallest table in it. Example: a
join of suppliers and customers by nation is estimated to be large, because both columns equal the key of the small
table of nations.

The search is greedy. It starts once from each relation, or from each of the STARTS_MAX smallest. It always appends the
relation that yields the fewest rows, of those that have an equality with the relations before, if there are any. The
order with the smallest sum of intermediate rows is chosen. On ties the relation that is first in the query is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from catalog.ids import ObjectId
from protocol.pgwire.types import BOOL
from server.sql.columns import ids, named
from server.sql.conditions import all_of, filtered, never_fails, parts
from server.sql.expressions import Call, ColumnRef, Expression, Literal, SessionValue, walk
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
from server.sql.grammar.checkpoint import checkpoint
from server.sql.relations import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    Relation,
    Scan,
    SetKind,
    SetOperation,
    Values,
    inputs_of,
    joined,
    only,
    with_inputs,
)

Sizes = Mapping[ObjectId, int]
"""The row counts of collections, as far as they are known."""

INNER = (JoinKind.INNER, JoinKind.CROSS)
STARTS_MAX = 32
"""The search takes a time of STARTS_MAX · n · (n + c) for n relations with c conditions."""
_USUAL_ROWS = 1_000.0
_EQUAL_SHARE, _OTHER_SHARE = 0.1, 0.3  # the estimated selectivity of an equality and of any other condition


def joins_ordered(relation: Relation, sizes: Sizes) -> Relation:
    inner: Relation = relation
    conditions: list[Expression] = []
    while isinstance(inner, Filter):
        conditions = [*parts(inner.predicate), *conditions]
        inner = inner.input
    if not isinstance(inner, Join) or inner.kind not in INNER:
        return with_inputs(relation, [joins_ordered(below, sizes) for below in inputs_of(relation)])
    leaves, known = flattened(inner)
    known += conditions
    sides = [joins_ordered(leaf, sizes) for leaf in leaves]
    return only(assembled(sides, known, _order(sides, known, sizes)), relation.columns)


def assembled(sides: Sequence[Relation], conditions: Sequence[Expression], order: Sequence[int]) -> Relation:
    """Joins the sides in an order. Each condition is part of the first join possible; the others become a filter."""
    whole, rest = sides[order[0]], list(conditions)
    for number in order[1:]:
        checkpoint()
        there, fresh = ids(whole.columns), ids(sides[number].columns)
        here = [c for c in rest if _belongs(c, there, fresh)]
        rest = [c for c in rest if c not in here]
        whole = joined(JoinKind.CROSS, whole, sides[number], all_of(here))
    return filtered(whole, rest)


def flattened(node: Relation) -> tuple[list[Relation], list[Expression]]:
    """The inputs of nested inner joins, and all their conditions."""
    if not isinstance(node, Join) or node.kind not in INNER:
        return [node], []
    left, right = flattened(node.left), flattened(node.right)
    return left[0] + right[0], left[1] + right[1] + [c for part in parts(node.condition) for c in factored(part)]


def factored(condition: Expression) -> list[Expression]:
    """Splits (a AND b) OR (a AND c) into a and (b OR c), so that a can be a join key."""
    if not isinstance(condition, Call) or condition.function is not syntax.OR:
        return [condition]
    branches = [parts(branch) for branch in condition.arguments]
    common = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    if not common:
        return [condition]
    rests = [all_of([part for part in branch if part not in common]) for branch in branches]
    if any(rest is None for rest in rests):
        return common
    return [*common, Call(syntax.OR, tuple(r for r in rests if r is not None), BOOL, condition.nullable)]


def _belongs(condition: Expression, there: set[int], fresh: set[int]) -> bool:
    """Whether a condition can be part of the join of the columns `there` and `fresh`. Temporal filters cannot."""
    possible = named(condition) <= there | fresh and not any(isinstance(n, SessionValue) for n in walk(condition))
    return possible and (_is_key(condition, there, fresh) or never_fails(condition))


def _is_key(condition: Expression, left: set[int], right: set[int]) -> bool:
    if not isinstance(condition, Call) or condition.function not in OPERATORS["="]:
        return False
    a, b = (named(argument) for argument in condition.arguments)
    return bool(a and b) and ((a <= left and b <= right) or (a <= right and b <= left))


# -- the order ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """`rows`: the estimated row count. `values`: the estimated maximum of distinct values of a key."""

    columns: set[int]
    rows: float
    values: float


def _order(sides: Sequence[Relation], conditions: Sequence[Expression], sizes: Sizes) -> list[int]:
    known = [_Side(ids(s.columns), _rows(s, sizes, filtered=True), _rows(s, sizes, filtered=False)) for s in sides]
    keys = _keys_of(known, conditions)
    starts = sorted(range(len(known)), key=lambda number: known[number].rows)[:STARTS_MAX]
    orders = [_followed(first, known, keys) for first in sorted(starts)]
    return min(orders, key=lambda order: order[0])[1]  # min returns the first of several minima


@dataclass(frozen=True, slots=True)
class _Key:
    """An equality that is a join key of the relations `sides` as soon as the relations before have the columns `needs`.

    `column` identifies it, `values` are the estimated distinct values of its class.
    """

    needs: frozenset[int]
    sides: tuple[int, ...]
    column: int
    values: float


def _keys_of(sides: Sequence[_Side], conditions: Sequence[Expression]) -> list[_Key]:
    """The equalities in both directions, as `_is_key`."""
    values = _values_of_classes(sides, conditions)
    sides_of: dict[int, set[int]] = {}
    for number, side in enumerate(sides):
        for column in side.columns:
            sides_of.setdefault(column, set()).add(number)
    keys = []
    for condition in conditions:
        if not isinstance(condition, Call) or condition.function not in OPERATORS["="]:
            continue
        a, b = (named(argument) for argument in condition.arguments)
        for needs, of_side in ((a, b), (b, a)) if a and b else ():
            possible = set.intersection(*(sides_of.get(column, set()) for column in of_side))
            column = _first_column(condition)
            keys.append(_Key(frozenset(needs), tuple(sorted(possible)), column, values[column]))
    return keys


def _followed(first: int, sides: Sequence[_Side], keys: Sequence[_Key]) -> tuple[float, list[int]]:
    """The greedy order that starts with a side: the sum of the rows of its joins, and the order."""
    lacking = [len(key.needs) for key in keys]
    needed_by: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        for column in key.needs:
            needed_by.setdefault(column, []).append(number)
    there: set[int] = set()
    different: dict[int, dict[int, float]] = {}  # of the sides with keys: the distinct values by column

    def add(side: int) -> None:
        for column in sides[side].columns - there:
            for number in needed_by.get(column, ()):
                lacking[number] -= 1
                if lacking[number] == 0:
                    for other in keys[number].sides:
                        different.setdefault(other, {})[keys[number].column] = keys[number].values
        there.update(sides[side].columns)

    add(first)
    order, rows, made = [first], sides[first].rows, 0.0
    remaining = dict.fromkeys(number for number in range(len(sides)) if number != first)
    while remaining:
        checkpoint()
        tied = [number for number in remaining if number in different]
        grown = {number: _joined_rows(rows, sides[number], different.get(number, {})) for number in tied or remaining}
        number = min(grown, key=grown.__getitem__)
        rows = grown[number]
        made += rows
        order.append(number)
        del remaining[number]
        add(number)
    return made, order


def _joined_rows(rows: float, side: _Side, different: Mapping[int, float]) -> float:
    return max(rows * side.rows / min(prod(different.values()), max(side.values, 1.0)), 1.0)


def _values_of_classes(sides: Sequence[_Side], conditions: Sequence[Expression]) -> dict[int, float]:
    """The estimated distinct values of each column in an equality: the minimum of `values` over its class's sides."""
    classes: list[set[int]] = []
    for condition in conditions:
        if isinstance(condition, Call) and condition.function in OPERATORS["="] and named(condition):
            together = named(condition) if _compares_columns(condition) else {_first_column(condition)}
            touched = [c for c in classes if c & together]
            classes = [c for c in classes if not c & together] + [together.union(*touched)]
    found = {}
    for of_class in classes:
        least = min((side.values for side in sides if side.columns & of_class), default=_USUAL_ROWS)
        found.update(dict.fromkeys(of_class, max(least, 1.0)))
    return found


def _compares_columns(condition: Call) -> bool:
    return all(isinstance(argument, ColumnRef) for argument in condition.arguments)


def _first_column(condition: Expression) -> int:
    return min(named(condition))


def _rows(node: Relation, sizes: Sizes, *, filtered: bool) -> float:
    """The estimated row count of a relation; if not `filtered`, ignoring the conditions of filters."""
    match node:
        case Scan(id=id):
            return float(sizes.get(id, _USUAL_ROWS))
        case Values(rows=rows):
            return float(len(rows))
        case Aggregate(keys=()):
            return 1.0
        case Limit(limit=Literal(value=int() as limit)):
            return float(limit)
        case Filter(input=input, predicate=predicate):
            kept = _rows(input, sizes, filtered=filtered)
            for part in parts(predicate) if filtered else []:
                is_equal = isinstance(part, Call) and part.function in OPERATORS["="]
                kept *= _EQUAL_SHARE if is_equal else _OTHER_SHARE
            return kept
        case SetOperation(kind=SetKind.UNION, left=left, right=right):
            return sum(_rows(side, sizes, filtered=filtered) for side in (left, right))
        case Join(left=left, right=right, kind=kind):
            of_left, of_right = (_rows(side, sizes, filtered=filtered) for side in (left, right))
            return of_left if kind in (JoinKind.SEMI, JoinKind.ANTI) else max(of_left, of_right)
    below = inputs_of(node)
    return _rows(below[0], sizes, filtered=filtered) if below else _USUAL_ROWS
