"""Conditions moved down to where their columns come from; between the sides of a cross join they make it a join.

Inner joins are put in an order in which each relation is joined by an equality, as far as there is one.

Only what never fails moves past a node that could have kept a row from it, so that no error appears which the query
as written does not have. An equality between the sides of a join is the exception: however its operands are computed,
a join by key computes them for every row, here as in any database.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.types import BOOL
from server.sql.expressions import Call, ColumnRef, Expression, Literal, SessionValue, walk
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
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
    with_values,
)

_INNER = (JoinKind.INNER, JoinKind.CROSS)


def filters_down(relation: Relation) -> Relation:
    return _pushed(relation, [])


def _pushed(node: Relation, conditions: Sequence[Expression]) -> Relation:
    """The node's rows that meet the conditions."""
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
    return _inner_joins(node, conditions) if node.kind in _INNER else _outer_join(node, conditions)


def _inner_joins(node: Join, conditions: Sequence[Expression]) -> Relation:
    """Joins of joins as one: each next relation is one that an equality ties to those before it, if there is one."""
    leaves: list[Relation] = []
    known: list[Expression] = []
    _flatten(node, leaves, known)
    known += [part for condition in conditions for part in _factored(condition)]
    rest = []
    own: list[list[Expression]] = [[] for _ in leaves]
    for condition in known:
        places = [i for i, leaf in enumerate(leaves) if named(condition) <= ids(leaf.columns)]
        if places and never_fails(condition):
            own[places[0]].append(condition)
        else:
            rest.append(condition)
    sides = [_pushed(leaf, below) for leaf, below in zip(leaves, own, strict=True)]
    whole, there, waiting = sides[0], ids(leaves[0].columns), list(range(1, len(leaves)))
    while waiting:
        tied = (i for i in waiting if any(_is_key(c, there, ids(leaves[i].columns)) for c in rest))
        place = next(tied, waiting[0])
        waiting.remove(place)
        fresh = ids(leaves[place].columns)
        here = [c for c in rest if _belongs(c, there, fresh)]
        rest = _without(rest, here)
        whole, there = joined(JoinKind.CROSS, whole, sides[place], all_of(here)), there | fresh
    columns = {c.id: c for c in whole.columns}
    return only(filtered(whole, rest), [columns[c.id] for c in node.columns])


def _flatten(node: Relation, leaves: list[Relation], conditions: list[Expression]) -> None:
    if isinstance(node, Join) and node.kind in _INNER:
        _flatten(node.left, leaves, conditions)
        _flatten(node.right, leaves, conditions)
        conditions += [c for part in parts(node.condition) for c in _factored(part)]
    else:
        leaves.append(node)


def _belongs(condition: Expression, there: set[int], fresh: set[int]) -> bool:
    """Whether it is one of the join of what is there with something fresh; a temporal filter stays a filter."""
    possible = named(condition) <= there | fresh and not _names_session(condition)
    return possible and (_is_key(condition, there, fresh) or never_fails(condition))


def _factored(condition: Expression) -> list[Expression]:
    """(a AND b) OR (a AND c) as a, and b OR c: then a can be a key."""
    if not isinstance(condition, Call) or condition.function is not syntax.OR:
        return [condition]
    arms = [parts(arm) for arm in condition.arguments]
    common = [part for part in arms[0] if all(part in arm for arm in arms[1:])]
    if not common:
        return [condition]
    rests = [all_of(_without(arm, common)) for arm in arms]
    if any(rest is None for rest in rests):
        return common
    return [*common, Call(syntax.OR, tuple(r for r in rests if r is not None), BOOL, condition.nullable)]


def _outer_join(node: Join, conditions: Sequence[Expression]) -> Relation:
    left, right = ids(node.left.columns), ids(node.right.columns)
    own = parts(node.condition)
    from_left = node.kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
    to_left = [c for c in conditions if from_left and named(c) <= left and never_fails(c)]
    to_right = [c for c in conditions if node.kind is JoinKind.RIGHT and named(c) <= right and never_fails(c)]
    above = _without(conditions, [*to_left, *to_right])
    # A condition of the join on the side that only gives partners keeps those out that are none.
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


def _names_session(condition: Expression) -> bool:
    return any(isinstance(node, SessionValue) for node in walk(condition))


def _is_key(condition: Expression, left: set[int], right: set[int]) -> bool:
    if not isinstance(condition, Call) or condition.function not in OPERATORS["="]:
        return False
    a, b = (named(argument) for argument in condition.arguments)
    return bool(a and b) and ((a <= left and b <= right) or (a <= right and b <= left))


def _without(conditions: Sequence[Expression], gone: Sequence[Expression]) -> list[Expression]:
    return [c for c in conditions if c not in gone]
