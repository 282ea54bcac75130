"""Which rows of a collection can affect a query, as far as conditions on key columns tell."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catalog.ids import ObjectId
from server.dataflow.plan.nodes import Linear, Node, Source, nodes_of
from server.sql.constant import Bindings
from server.sql.functions.syntax import conjuncts
from server.sql.key_conditions import EXACT, key_conditions, numbers_of
from server.sql.relations import Filter, Project, Relation, Scan, Sort, Unnest


@dataclass(frozen=True, slots=True, eq=False)
class KeyValues:
    """The rows with one of `values` in the column number `column` of the collection."""

    column: int
    values: pa.Array


def relevant_rows(root: Node) -> dict[ObjectId, list[KeyValues]]:
    """Conditions by collection. A row that matches none of them does not affect the result of a delta plan.

    Collections without an entry may affect it by every row. The conditions are of types in `EXACT`.
    """
    found: dict[ObjectId, list[KeyValues]] = {}
    unlimited = {root.id} if isinstance(root, Source) else set()
    for node in nodes_of(root):
        for source in node.inputs:
            if isinstance(source, Source):
                condition = _condition(node) if isinstance(node, Linear) else None
                if condition is None:
                    unlimited.add(source.id)
                else:
                    found.setdefault(source.id, []).append(condition)
    return {id: conditions for id, conditions in found.items() if id not in unlimited}


def _condition(node: Linear) -> KeyValues | None:
    """The first suitable condition of the filters that a linear node applies to the collection's rows.

    A column id is unique in a plan: wherever a filter names a column of the collection, it means its value there.
    """
    filters: list[Filter] = []
    relation: Relation = node.relation
    while isinstance(relation, (Filter, Project, Sort, Unnest)):
        if isinstance(relation, Filter):
            filters.append(relation)
        relation = relation.input
    if not isinstance(relation, Scan):
        return None
    conditions = (condition for filter in filters for condition in conjuncts(filter.predicate))
    keys = key_conditions(conditions, numbers_of(relation.columns))
    exact = (key for key in keys if key.type.representation in EXACT and not key.is_cast)
    return next((KeyValues(key.column, key.column_values(Bindings())) for key in exact), None)
