"""Index lookups: the relations of a query of which only rows with given keys are needed.

Conditions are pushed down to the scans by `rewrite.filters`, so every scan of the relation needs only rows that meet
its conditions. The query itself is executed as planned, with only these rows as input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.indexes import Index
from catalog.state import CatalogState
from protocol.columnar.hashing import Hashes, key_codes
from server.sql.conditions import parts
from server.sql.constant import Bindings
from server.sql.expressions import ColumnRef, Expression, children, transform
from server.sql.index_keys import index_keys
from server.sql.key_conditions import KeyCondition, Numbers, key_conditions
from server.sql.relations import Filter, Relation, Scan
from server.sql.rewrite.filters import filters_down

COMBINED_MAX = 10_000  # combinations of values of several columns; with more, the relation is read without the index


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """`scans`: the key conditions of each scan of the relation, by the id of the scan's first column.

    The `column` of a KeyCondition is its position in the index key.
    """

    index: ObjectId
    scans: Mapping[int, tuple[KeyCondition, ...]]

    @property
    def width(self) -> int:
        """The number of columns of the index key."""
        return len(next(iter(self.scans.values())))

    def codes(self, bindings: Bindings) -> Hashes | None:
        """The hashes of the keys to look up, ascending and distinct; None for more than COMBINED_MAX combinations."""
        found = []
        for keys in self.scans.values():
            columns = [key.column_values(bindings) for key in keys]
            if len(columns) > 1:
                if np.prod([len(column) for column in columns], dtype=object) > COMBINED_MAX:
                    return None
                positions = np.array(list(product(*(range(len(column)) for column in columns))), np.int64)
                positions = positions.reshape(-1, len(columns))
                columns = [column.take(pa.array(positions[:, i])) for i, column in enumerate(columns)]
            names = [f"c{i}" for i in range(len(columns))]
            found.append(key_codes(pa.table(columns, names=names), names))
        return np.unique(np.concatenate(found))


def lookups_of(relation: Relation, scanned: Iterable[ObjectId], state: CatalogState) -> Mapping[ObjectId, Lookup]:
    """The relations of a query that an index can serve, each with the index that has the most key columns.

    `scanned`: the relations that the query scans.
    """
    found = {}
    for id, (indexes, scans) in _indexed_scans(relation, scanned, state).items():
        candidates = [lookup for index in indexes if (lookup := _lookup(index, state, scans)) is not None]
        if candidates:
            found[id] = max(candidates, key=lambda lookup: (lookup.width, lookup.index))
    return found


def too_wide(
    relation: Relation, scanned: Iterable[ObjectId], state: CatalogState
) -> Iterator[tuple[Index, tuple[int, ...]]]:
    """Indexes that could serve the query with fewer key columns, each with the positions of the usable columns."""
    served = lookups_of(relation, scanned, state)
    for id, (indexes, scans) in _indexed_scans(relation, scanned, state).items():
        for index in indexes if id not in served else ():
            positions = [set(_keys(index, state, scan, conditions)) for scan, conditions in scans]
            if common := set.intersection(*positions):
                yield index, tuple(sorted(common))


_FilteredScans = list[tuple[Scan, Sequence[Expression]]]


def _indexed_scans(
    relation: Relation, scanned: Iterable[ObjectId], state: CatalogState
) -> dict[ObjectId, tuple[tuple[Index, ...], _FilteredScans]]:
    """For each relation that has indexes: the indexes, and its scans with the conditions on all their rows."""
    found: dict[ObjectId, tuple[tuple[Index, ...], _FilteredScans]] = {
        id: (indexes, []) for id in scanned if (indexes := state.indexes_on(id))
    }
    if not found:
        return {}
    try:
        for scan, conditions in _filtered_scans(filters_down(relation)):
            if scan.id in found:
                found[scan.id][1].append((scan, conditions))
    except RecursionError:  # the query can still be executed without an index
        return {}
    return found


def _lookup(index: Index, state: CatalogState, scans: _FilteredScans) -> Lookup | None:
    positions = range(len(index.keys))
    keys: dict[int, tuple[KeyCondition, ...]] = {}
    for scan, conditions in scans:
        known = _keys(index, state, scan, conditions)
        if len(known) < len(positions) or scan.columns[0].id in keys:  # or the same scan occurs twice in the plan
            return None
        keys[scan.columns[0].id] = tuple(known[position] for position in positions)
    return Lookup(index.id, keys)


def _keys(index: Index, state: CatalogState, scan: Scan, conditions: Sequence[Expression]) -> dict[int, KeyCondition]:
    """The key conditions among the conditions, by their positions in the index key."""
    wanted = index_keys(state.relation(index.on).columns, index.keys)
    return {key.column: key for key in reversed(key_conditions(conditions, _numbering(scan, wanted)))}


def _numbering(scan: Scan, wanted: Sequence[int | Expression]) -> Numbers:
    """Maps the scan's columns, and expressions over them, to their positions in the index key."""
    numbers = {column.id: number for number, column in enumerate(scan.columns)}
    columns = {column.id: column for column in scan.columns}
    positions: dict[Any, int] = {}
    for position, key in enumerate(wanted):
        if isinstance(key, int):
            positions[key] = position
            continue

        def own(node: Any) -> Any | None:
            return ColumnRef(scan.columns[node.column.id - 1]) if isinstance(node, ColumnRef) else None

        positions[transform(key, own)] = position

    def number_of(expression: Expression) -> int | None:
        if isinstance(expression, ColumnRef) and expression.column.id in columns:
            return positions.get(numbers[expression.column.id])
        try:
            return positions.get(expression)
        except TypeError:  # not hashable: the expression contains a list of values, which no key does
            return None

    return number_of


def _filtered_scans(root: Relation) -> Iterator[tuple[Scan, Sequence[Expression]]]:
    """Every scan, including those in subqueries, with the conditions that all its rows must meet."""
    stack: list[Any] = [root]
    while stack:
        match stack.pop():
            case Scan() as scan:
                yield scan, ()
            case Filter(input=Scan() as scan, predicate=predicate):
                yield scan, parts(predicate)
                stack.append(predicate)
            case node:
                stack.extend(children(node))
