"""Partitions of a window that contain whole groups, or whole partitions, of the operators above it.

If every group of an aggregate over a window is within one partition, one operator recomputes both by the window's key:

    Δ(g(f(A))) = g(f(A'[K])) - g(f(A[K])),  with f the window, g the aggregate, and K the partitions of ΔA

The statement reads the rows that the window alone would read, and the rows between the two are neither arranged nor
compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.columns import ids
from server.sql.expressions import ColumnRef, Expression
from server.sql.relations import Aggregate, Filter, Project, Relation, Unnest, Window, inputs_of, with_inputs
from server.sql.rewrite.keys import partition_keys
from server.sql.temporal import is_temporal


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A window, and the relation over it up to the next window or aggregate."""

    window: Window
    relation: Relation


def partitioned(base: Aggregate | Window) -> Partitioned | None:
    """The deepest window below `base` whose partitions contain whole groups, or partitions, of all operators above it.

    Only filters, projections, unnests and windows are between the two. None if there is no such window.
    """
    keys = _columns(base.keys if isinstance(base, Aggregate) else partition_keys(base))
    found, top, node = None, base.input, base.input
    while keys:
        match node:
            case Filter() if not is_temporal(node):
                pass
            case Project(columns=columns, expressions=expressions):
                keys = _columns([e for c, e in zip(columns, expressions, strict=True) if c.id in keys])
            case Unnest(input=input):
                keys &= ids(input.columns)
            case Window(input=input):
                own = _columns(partition_keys(node))
                if not own or not own <= keys:
                    break
                found, keys, top = Partitioned(node, top), own, input
            case _:
                break
        node = node.input
    return found


def passed_on(relation: Relation, base: Relation) -> dict[int, int]:
    """The positions in `relation` of columns of `base`'s input that it has unchanged, by their ids.

    Of an aggregate these are the keys. All relations from `relation` down to `base` have one input.
    """
    (input,) = inputs_of(relation)
    below = {column.id: i for i, column in enumerate(input.columns)} if relation is base else passed_on(input, base)
    match relation:
        case Project(expressions=expressions):
            made = list(expressions)
        case Aggregate(keys=keys):
            made = list(keys)
        case _:
            made = [ColumnRef(column) for column in relation.columns]
    position = {e.column.id: i for i, e in reversed(list(enumerate(made))) if isinstance(e, ColumnRef)}
    names = {id: input.columns[at].id for id, at in below.items()}
    return {id: position[name] for id, name in names.items() if name in position}


def _columns(expressions: list[Expression] | tuple[Expression, ...]) -> set[int]:
    """The ids of the columns among the expressions."""
    return {expression.column.id for expression in expressions if isinstance(expression, ColumnRef)}


def moved(relation: Relation, base: Relation, over: Relation) -> Relation:
    """The relation with `over` instead of `base`. All relations from `relation` down to `base` have one input."""
    if relation is base:
        return over
    (input,) = inputs_of(relation)
    return with_inputs(relation, [moved(input, base, over)])
