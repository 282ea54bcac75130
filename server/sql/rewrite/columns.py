"""Projection pushdown: removes unused columns early, because dataflows store the rows that they join and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from server.sql.columns import ids, named, with_values
from server.sql.expressions import Column, ColumnRef
from server.sql.relations import (
    Aggregate,
    Distinct,
    DistinctOn,
    Filter,
    Join,
    Limit,
    Project,
    Relation,
    Scan,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Window,
    joined,
    only,
)


def pruned(relation: Relation) -> Relation:
    return _trimmed(relation, relation.columns)


def _trimmed(node: Relation, columns: Sequence[Column]) -> Relation:
    """The node with only these of its columns."""
    below = _pruned(node, ids(columns))
    known = {c.id: c for c in below.columns}
    return _merged(only(below, [known[c.id] for c in columns]))


def _kept(columns: Sequence[Column], needed: set[int]) -> list[Column]:
    return [c for c in columns if c.id in needed]


def _pruned(node: Relation, needed: set[int]) -> Relation:
    """The node with at least the columns in `needed`, in the node's order."""
    match node:
        case Scan(columns=columns):
            return only(node, _kept(columns, needed))
        case Project(input=input, columns=columns, expressions=expressions):
            pairs = [(c, e) for c, e in zip(columns, expressions, strict=True) if c.id in needed]
            kept = tuple(e for _, e in pairs)
            below = _pruned(input, named(kept))
            return _merged(Project(below, tuple(c for c, _ in pairs), kept))
        case Filter(input=input, predicate=predicate):
            return replace(node, input=_pruned(input, needed | named(predicate)))
        case Join(kind=kind, left=left, right=right, condition=condition):
            wanted = needed | named(condition)
            sides = [_trimmed(side, _kept(side.columns, wanted)) for side in (left, right)]
            return joined(kind, sides[0], sides[1], condition)
        case Aggregate(input=input, keys=keys, calls=calls, columns=columns):
            width = len(keys)
            kept_calls = [(c, call) for c, call in zip(columns[width:], calls, strict=True) if c.id in needed]
            used = tuple(call for _, call in kept_calls)
            below = _trimmed(input, _kept(input.columns, named((*keys, *used))))
            return replace(node, input=below, calls=used, columns=(*columns[:width], *(c for c, _ in kept_calls)))
        case Window(input=input, calls=calls, columns=columns):
            added = zip(columns[len(input.columns) :], calls, strict=True)
            kept_calls_ = [(c, call) for c, call in added if c.id in needed]
            if not kept_calls_:
                return _pruned(input, needed)
            used_ = tuple(call for _, call in kept_calls_)
            below = _trimmed(input, _kept(input.columns, needed | named(used_)))
            return Window(below, used_, (*below.columns, *(c for c, _ in kept_calls_)))
        case Distinct(input=input):
            return replace(node, input=_trimmed(input, input.columns))
        case DistinctOn(input=input, keys=keys, order=order):
            wanted = needed | named((*keys, *order))
            return replace(node, input=_trimmed(input, _kept(input.columns, wanted)))
        case SetOperation(kind=SetKind.UNION, all=True, left=left, right=right, columns=columns):
            indexes = [i for i, c in enumerate(columns) if c.id in needed]
            left, right = (_trimmed(side, [side.columns[i] for i in indexes]) for side in (left, right))
            return replace(node, left=left, right=right, columns=tuple(columns[i] for i in indexes))
        case SetOperation(left=left, right=right):
            return replace(node, left=_trimmed(left, left.columns), right=_trimmed(right, right.columns))
        case Limit(input=Sort(input=input, keys=keys) as sort):
            below = _trimmed(input, _kept(input.columns, needed | named(keys)))
            return replace(node, input=replace(sort, input=below))
        case Sort(input=input, keys=keys):
            return replace(node, input=_pruned(input, needed | named(keys)))
        case Limit(input=input):
            return replace(node, input=_pruned(input, needed))
        case Unnest(input=input, arrays=arrays, columns=columns):
            below = _pruned(input, needed | named(arrays))
            return replace(node, input=below, columns=(*below.columns, *columns[len(input.columns) :]))
    return node


def _merged(node: Relation) -> Relation:
    """Merges two adjacent projections if one of them contains only column references."""
    if not isinstance(node, Project) or not isinstance(node.input, Project):
        return node
    below = node.input
    values = {c.id: e for c, e in zip(below.columns, below.expressions, strict=True)}
    picks = all(isinstance(e, ColumnRef) for e in node.expressions)
    if not picks and not all(isinstance(e, ColumnRef) for e in below.expressions):
        return node
    used = [e.column.id for e in node.expressions if isinstance(e, ColumnRef)]
    if picks and len(set(used)) < len(used):
        return node  # an expression would be computed twice
    return _merged(Project(below.input, node.columns, tuple(with_values(e, values) for e in node.expressions)))
