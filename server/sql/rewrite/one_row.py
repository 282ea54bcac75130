"""Turns an outer join without a condition into a cross join if the other side always has exactly one row."""

from __future__ import annotations

from server.sql.conditions import parts
from server.sql.relations import Join, JoinKind, Relation, bottom_up, has_one_row, joined


def crossed(relation: Relation) -> Relation:
    return bottom_up(relation, _changed)


def _changed(node: Relation) -> Relation:
    if not isinstance(node, Join) or parts(node.condition):
        return node
    left = node.kind is JoinKind.LEFT and has_one_row(node.right)
    right = node.kind is JoinKind.RIGHT and has_one_row(node.left)
    return joined(JoinKind.CROSS, node.left, node.right, None) if left or right else node
