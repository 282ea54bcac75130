"""Turns an outer join without a condition into a cross join if the other side always has exactly one row."""

from __future__ import annotations

from server.sql.conditions import parts
from server.sql.relations import Aggregate, Join, JoinKind, Project, Relation, Sort, Values, bottom_up, joined


def crossed(relation: Relation) -> Relation:
    return bottom_up(relation, _changed)


def _changed(node: Relation) -> Relation:
    if not isinstance(node, Join) or parts(node.condition):
        return node
    left = node.kind is JoinKind.LEFT and _is_one_row(node.right)
    right = node.kind is JoinKind.RIGHT and _is_one_row(node.left)
    return joined(JoinKind.CROSS, node.left, node.right, None) if left or right else node


def _is_one_row(node: Relation) -> bool:
    match node:
        case Aggregate(keys=keys):
            return not keys
        case Values(rows=rows):
            return len(rows) == 1
        case Project(input=input) | Sort(input=input):
            return _is_one_row(input)
        case Join(kind=JoinKind.CROSS, left=left, right=right):
            return _is_one_row(left) and _is_one_row(right)
    return False
