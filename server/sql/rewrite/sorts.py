"""Removes every Sort that is not needed by a LIMIT, and moves each LIMIT directly above its Sort."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from server.sql.expressions import Subquery, transform
from server.sql.relations import Limit, Project, Relation, Sort, inputs_of, with_inputs


def sorts_of_limits(relation: Relation) -> Relation:
    """The relation without unneeded Sorts, also in its subqueries."""

    def inside(node: Any) -> Any | None:
        return replace(node, relation=sorts_of_limits(node.relation)) if isinstance(node, Subquery) else None

    return _changed(transform(relation, inside))


def _changed(relation: Relation) -> Relation:
    match relation:
        case Sort(input=input):
            return _changed(input)
        case Limit(input=Project(input=input) as project):  # a projection commutes with LIMIT
            return with_inputs(project, [_changed(replace(relation, input=input))])
        case Limit(input=Sort(input=input) as sort):
            return replace(relation, input=replace(sort, input=_changed(input)))
    return with_inputs(relation, [_changed(below) for below in inputs_of(relation)])
