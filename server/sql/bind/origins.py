"""The relation's column that each output column of a query is, as RowDescription reports it (parse_target.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from catalog.ids import ObjectId
from server.sql.bind.binder import Binder
from server.sql.expressions import ColumnRef
from server.sql.relations import Aggregate, Project, Recursive, Relation, SetOperation, inputs_of

Origin: TypeAlias = tuple[ObjectId, int]
"""A relation and the number of its column, from 1."""


def origins(binder: Binder, relation: Relation) -> tuple[Origin | None, ...]:
    """The origin of each output column; None for one that is computed, or is that of a set operation.

    `relation` must be as it was bound: casts that are added for the client's types do not change an origin.
    """
    sources = dict(binder.copies)
    pending = [relation]
    while pending:
        match node := pending.pop():
            case Project(columns=columns, expressions=expressions) | Aggregate(columns=columns, keys=expressions):
                for column, expression in zip(columns, expressions, strict=False):
                    if isinstance(expression, ColumnRef):
                        sources.setdefault(column.id, expression.column.id)
            case SetOperation() | Recursive():
                continue  # their columns have no origins
        pending.extend(inputs_of(node))
    return tuple(_origin(binder, sources, column.id) for column in relation.columns)


def _origin(binder: Binder, sources: dict[int, int], id: int) -> Origin | None:
    passed = set[int]()
    while id not in passed:
        if (known := binder.column_of(id)) is not None:
            relation, number = known
            derived: Sequence[Origin | None] | None = binder.context.derived.get(relation)
            return (relation, number + 1) if derived is None else derived[number]
        passed.add(id)
        id = sources.get(id, id)
    return None
