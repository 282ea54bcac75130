"""A set of rows has no order: only LIMIT needs one, and then it stands over its ORDER BY directly."""

from __future__ import annotations

from dataclasses import replace

from server.sql.relations import Limit, Project, Relation, Sort
from server.sql.rewrite.nodes import inputs_of, with_inputs


def sorts_of_limits(relation: Relation) -> Relation:
    match relation:
        case Sort(input=input):
            return sorts_of_limits(input)
        case Limit(input=Project(input=input) as project):  # what stands above the order commutes with the limit
            return with_inputs(project, [sorts_of_limits(replace(relation, input=input))])
        case Limit(input=Sort(input=input) as sort):
            return replace(relation, input=replace(sort, input=sorts_of_limits(input)))
    return with_inputs(relation, [sorts_of_limits(below) for below in inputs_of(relation)])
