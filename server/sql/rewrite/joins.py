"""Inner joins put in an order in which each relation is tied to those before it by an equality, and few rows are made.

How many rows a join makes is guessed from the rows of its inputs alone. An equality is one of a class of columns that
are all equal, and such a class has no more values than the smallest table in it has rows: so suppliers and customers
of one nation are seen to be many pairs, where both are tied to the nations. Every relation is tried as the first one,
and followed by the one with which there are the fewest rows; the order in which the query has them stands unless
another one makes fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.objects import ObjectId
from protocol.pgwire.types import BOOL
from server.sql.expressions import Call, ColumnRef, Expression, Literal, SessionValue, walk
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
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
)
from server.sql.rewrite.nodes import (
    all_of,
    filtered,
    ids,
    inputs_of,
    joined,
    named,
    never_fails,
    only,
    parts,
    with_inputs,
)

Sizes = Mapping[ObjectId, int]
"""How many rows collections have, as far as it is known."""

INNER = (JoinKind.INNER, JoinKind.CROSS)
_USUAL_ROWS = 1_000.0
_EQUAL_SHARE, _OTHER_SHARE = 0.1, 0.3  # of the rows that a condition lets pass


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
    """The join of the sides in an order, each with the conditions that can be met there, the others above."""
    whole, rest = sides[order[0]], list(conditions)
    for place in order[1:]:
        here = [c for c in rest if _belongs(c, ids(whole.columns), ids(sides[place].columns))]
        rest = [c for c in rest if c not in here]
        whole = joined(JoinKind.CROSS, whole, sides[place], all_of(here))
    return filtered(whole, rest)


def flattened(node: Relation) -> tuple[list[Relation], list[Expression]]:
    """What inner joins of inner joins join, and their conditions."""
    if not isinstance(node, Join) or node.kind not in INNER:
        return [node], []
    left, right = flattened(node.left), flattened(node.right)
    return left[0] + right[0], left[1] + right[1] + [c for part in parts(node.condition) for c in factored(part)]


def factored(condition: Expression) -> list[Expression]:
    """(a AND b) OR (a AND c) as a, and b OR c: then a can be a key."""
    if not isinstance(condition, Call) or condition.function is not syntax.OR:
        return [condition]
    arms = [parts(arm) for arm in condition.arguments]
    common = [part for part in arms[0] if all(part in arm for arm in arms[1:])]
    if not common:
        return [condition]
    rests = [all_of([part for part in arm if part not in common]) for arm in arms]
    if any(rest is None for rest in rests):
        return common
    return [*common, Call(syntax.OR, tuple(r for r in rests if r is not None), BOOL, condition.nullable)]


def _belongs(condition: Expression, there: set[int], fresh: set[int]) -> bool:
    """Whether it is one of the join of what is there with something fresh; a temporal filter stays a filter."""
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
    """`rows`: about how many it has; `values`: how many different ones a key of it may have."""

    columns: set[int]
    rows: float
    values: float


def _order(sides: Sequence[Relation], conditions: Sequence[Expression], sizes: Sizes) -> list[int]:
    known = [_Side(ids(s.columns), _rows(s, sizes, filtered=True), _rows(s, sizes, filtered=False)) for s in sides]
    values = _values_of_classes(known, conditions)
    orders = [_followed(first, known, conditions, values) for first in range(len(known))]
    return min(orders, key=lambda order: order[0])[1]  # the first of the best


def _followed(
    first: int, sides: Sequence[_Side], conditions: Sequence[Expression], values: Mapping[int, float]
) -> tuple[float, list[int]]:
    """The best order that begins with a side, and the rows that its joins make."""
    order, there, rows, made = [first], set(sides[first].columns), sides[first].rows, 0.0
    waiting = [i for i in range(len(sides)) if i != first]
    while waiting:
        tied = [i for i in waiting if any(_is_key(c, there, sides[i].columns) for c in conditions)]
        grown = {i: _joined_rows(rows, there, sides[i], conditions, values) for i in tied or waiting}
        place = min(grown, key=lambda i: grown[i])
        rows = grown[place]
        made += rows
        order.append(place)
        waiting.remove(place)
        there |= sides[place].columns
    return made, order


def _joined_rows(
    rows: float, there: set[int], side: _Side, conditions: Sequence[Expression], values: Mapping[int, float]
) -> float:
    keys = [c for c in conditions if _is_key(c, there, side.columns)]
    different = 1.0
    for column in {_first_column(c) for c in keys}:
        different *= values[column]
    return max(rows * side.rows / min(different, max(side.values, 1.0)), 1.0)


def _values_of_classes(sides: Sequence[_Side], conditions: Sequence[Expression]) -> dict[int, float]:
    """For the first column of each equality how many values it may have: those of the smallest side that has it."""
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
    """About how many rows a relation has; if not `filtered`, as if no condition kept any from it."""
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
