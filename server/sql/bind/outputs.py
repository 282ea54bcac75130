"""The output columns of a relation, while their types can still be changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from protocol.pgwire.types import UNKNOWN
from server.sql.bind.binder import Binder
from server.sql.expressions import ColumnRef, Expression
from server.sql.relations import Limit, Project, Relation


def output_expressions(relation: Relation) -> list[Expression]:
    """The expressions of a projection, which can still be coerced; for other relations, references to their columns."""
    if _is_limit_of_unknown(relation):
        return output_expressions(relation.input)
    if isinstance(relation, Project):
        return list(relation.expressions)
    return [ColumnRef(column) for column in relation.columns]


def _is_limit_of_unknown(relation: Relation) -> TypeGuard[Limit]:
    """Whether literals below a LIMIT have no type yet. Other outputs are computed above it, for fewer rows."""
    return isinstance(relation, Limit) and any(column.type == UNKNOWN for column in relation.columns)


def with_outputs(binder: Binder, relation: Relation, outputs: Sequence[Expression]) -> Relation:
    """Replaces the output expressions (`output_expressions`) of a relation."""
    if output_expressions(relation) == list(outputs) and all(c.type != UNKNOWN for c in relation.columns):
        return relation
    if _is_limit_of_unknown(relation):
        return replace(relation, input=with_outputs(binder, relation.input, outputs))
    if isinstance(relation, Project):
        columns = tuple(binder.new_column(c.name, e) for c, e in zip(relation.columns, outputs, strict=True))
        return Project(relation.input, columns, tuple(outputs))
    return projected(binder, relation, outputs)


def assigned(binder: Binder, relation: Relation, outputs: Callable[[int, Expression], Expression]) -> Relation:
    """Maps every output column by `outputs` (number, expression)."""
    changed = [outputs(i, e) for i, e in enumerate(output_expressions(relation))]
    return with_outputs(binder, relation, changed)


def projected(binder: Binder, relation: Relation, expressions: Sequence[Expression]) -> Relation:
    """A projection of `expressions` over `relation`; `relation` itself if they are its columns."""
    if [e.column for e in expressions if isinstance(e, ColumnRef)] == list(relation.columns):
        return relation
    columns = tuple(binder.new_column(c.name, e) for c, e in zip(relation.columns, expressions, strict=True))
    return Project(relation, columns, tuple(expressions))
