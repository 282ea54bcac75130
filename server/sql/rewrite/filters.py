"""Predicate pushdown. Conditions move down to the inputs of their columns; cross joins with conditions become joins.

A condition moves below a node that removes rows only if it never fails. Otherwise it could raise an error for a row
for which the query as written does not evaluate it. The exception is an equality between the sides of a join: a join
by key evaluates its operands for every row, as in any database.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.types import BOOL
from server.sql.columns import ids, named, with_values
from server.sql.conditions import all_of, filtered, never_fails, parts
from server.sql.expressions import ColumnRef, Expression, Literal
from server.sql.relations import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Project,
    Relation,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    inputs_of,
    joined,
    only,
    with_inputs,
)
from server.sql.rewrite.joins import INNER, assembled, factored, flattened


def filters_down(relation: Relation) -> Relation:
    return _pushed(relation, [])


def _pushed(node: Relation, conditions: Sequence[Expression]) -> Relation:
    """The node filtered by the conditions, which are pushed down as far as possible."""
    match node:
        case Filter(input=input, predicate=predicate):
            return _pushed(input, [*parts(predicate), *conditions])
        case Join():
            return _join(node, conditions)
        case Project(input=input, columns=columns, expressions=expressions):
            values = {c.id: e for c, e in zip(columns, expressions, strict=True)}
            moving = [c for c in conditions if never_fails(c) and all(never_fails(values[id]) for id in named(c))]
            below = _pushed(input, [with_values(c, values) for c in moving])
            return filtered(with_inputs(node, [below]), _without(conditions, moving))
        case Sort(input=input) | Distinct(input=input):
            moving = list(filter(never_fails, conditions))
            return filtered(with_inputs(node, [_pushed(input, moving)]), _without(conditions, moving))
        case Aggregate(input=input, keys=keys, columns=columns) if keys:
            values = {c.id: e for c, e in zip(columns, keys, strict=False) if isinstance(e, ColumnRef)}
            moving = [c for c in conditions if never_fails(c) and named(c) and named(c) <= values.keys()]
            below = _pushed(input, [with_values(c, values) for c in moving])
            return filtered(with_inputs(node, [below]), _without(conditions, moving))
        case SetOperation(kind=SetKind.UNION, left=left, right=right, columns=columns):
            moving = list(filter(never_fails, conditions))
            sides = []
            for side in (left, right):
                values = {c.id: ColumnRef(own) for c, own in zip(columns, side.columns, strict=True)}
                pushed = _pushed(side, [with_values(c, values) for c in moving])
                sides.append(only(pushed, side.columns))
            return filtered(with_inputs(node, sides), _without(conditions, moving))
        case Unnest(input=input):
            known = ids(input.columns)
            moving = [c for c in conditions if never_fails(c) and named(c) <= known]
            below = _pushed(input, moving)
            return filtered(with_inputs(node, [below]), _without(conditions, moving))
    below = with_inputs(node, [_pushed(input, []) for input in inputs_of(node)])
    return filtered(below, conditions)


def _join(node: Join, conditions: Sequence[Expression]) -> Relation:
    return _inner_joins(node, conditions) if node.kind in INNER else _outer_join(node, conditions)


def _inner_joins(node: Join, conditions: Sequence[Expression]) -> Relation:
    """Flattens nested inner joins, distributes the conditions and joins the inputs again in the same order."""
    leaves, known = flattened(node)
    known += [part for condition in conditions for part in factored(condition)]
    rest = []
    own: list[list[Expression]] = [[] for _ in leaves]
    for condition in known:
        indexes = [i for i, leaf in enumerate(leaves) if named(condition) <= ids(leaf.columns)]
        if indexes and never_fails(condition):
            own[indexes[0]].append(condition)
        else:
            rest.append(condition)
    sides = [_pushed(leaf, below) for leaf, below in zip(leaves, own, strict=True)]
    return only(assembled(sides, rest, range(len(sides))), node.columns)


def _outer_join(node: Join, conditions: Sequence[Expression]) -> Relation:
    left, right = ids(node.left.columns), ids(node.right.columns)
    own = parts(node.condition)
    from_left = node.kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
    to_left = [c for c in conditions if from_left and named(c) <= left and never_fails(c)]
    to_right = [c for c in conditions if node.kind is JoinKind.RIGHT and named(c) <= right and never_fails(c)]
    above = _without(conditions, [*to_left, *to_right])
    # a join condition that names only the non-preserved side can filter that side before the join
    partners = [c for c in own if named(c) and never_fails(c)]
    moved: list[Expression] = []
    if from_left:
        moved = [c for c in partners if named(c) <= right]
        to_right += moved
    elif node.kind is JoinKind.RIGHT:
        moved = [c for c in partners if named(c) <= left]
        to_left += moved
    if node.kind is JoinKind.SEMI:
        kept_left = [c for c in partners if named(c) <= left]
        to_left += kept_left
        moved = [*moved, *kept_left]
    sides = (_pushed(node.left, to_left), _pushed(node.right, to_right))
    condition = all_of(_without(own, moved)) or Literal(True, BOOL)
    return filtered(joined(node.kind, sides[0], sides[1], condition), above)


def _without(conditions: Sequence[Expression], gone: Sequence[Expression]) -> list[Expression]:
    return [c for c in conditions if c not in gone]
