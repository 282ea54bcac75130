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

from catalog.hashing import Hashes, key_codes
from catalog.objects import Index, ObjectId
from catalog.state import CatalogState
from server.sql.conditions import parts
from server.sql.constant import Bindings
from server.sql.expressions import ColumnRef, Expression, children, transform
from server.sql.index_keys import index_keys
from server.sql.keys import Key, Numbers, keys_of
from server.sql.relations import Filter, Relation, Scan
from server.sql.rewrite.filters import filters_down

COMBINED_MAX = 10_000  # combinations of values of several columns; with more, the relation is read without the index


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """`scans`: the keys of each scan of the relation, by the id of the scan's first column.

    The `column` of a Key is its position in the index key.
    """

    index: ObjectId
    scans: Mapping[int, tuple[Key, ...]]

    @property
    def width(self) -> int:
        """The number of columns of the index key."""
        return len(next(iter(self.scans.values())))

    def codes(self, bindings: Bindings) -> Hashes | None:
        """The hashes of the keys to look up, ascending and distinct; None for more than COMBINED_MAX combinations."""
        found = []
        for keys in self.scans.values():
            columns = [key.wanted(bindings) for key in keys]
            if len(columns) > 1:
                if np.prod([len(column) for column in columns], dtype=object) > COMBINED_MAX:
                    return None
                places = np.array(list(product(*(range(len(column)) for column in columns))), np.int64)
                places = places.reshape(-1, len(columns))
                columns = [column.take(pa.array(places[:, i])) for i, column in enumerate(columns)]
            names = [f"c{i}" for i in range(len(columns))]
            found.append(key_codes(pa.table(columns, names=names), names))
        return np.unique(np.concatenate(found))


def lookups_of(relation: Relation, scanned: Iterable[ObjectId], state: CatalogState) -> Mapping[ObjectId, Lookup]:
    """The relations of a query that an index can serve, each with the index that has the most key columns.

    `scanned`: the relations that the query scans.
    """
    found = {}
    for id, (indexes, asked) in _asked_of(relation, scanned, state).items():
        candidates = [lookup for index in indexes if (lookup := _lookup(index, state, asked)) is not None]
        if candidates:
            found[id] = max(candidates, key=lambda lookup: (lookup.width, lookup.index))
    return found


def too_wide(
    relation: Relation, scanned: Iterable[ObjectId], state: CatalogState
) -> Iterator[tuple[Index, tuple[int, ...]]]:
    """Indexes that could serve the query with fewer key columns, each with the positions of the usable columns."""
    served = lookups_of(relation, scanned, state)
    for id, (indexes, asked) in _asked_of(relation, scanned, state).items():
        for index in indexes if id not in served else ():
            places = [set(_keys(index, state, scan, conditions)) for scan, conditions in asked]
            if common := set.intersection(*places):
                yield index, tuple(sorted(common))


_Asked = list[tuple[Scan, Sequence[Expression]]]


def _asked_of(
    relation: Relation, scanned: Iterable[ObjectId], state: CatalogState
) -> dict[ObjectId, tuple[tuple[Index, ...], _Asked]]:
    """For each relation that has indexes: the indexes, and its scans with the conditions on all their rows."""
    found: dict[ObjectId, tuple[tuple[Index, ...], _Asked]] = {
        id: (indexes, []) for id in scanned if (indexes := state.indexes_on(id))
    }
    if not found:
        return {}
    try:
        for scan, conditions in _asked(filters_down(relation)):
            if scan.id in found:
                found[scan.id][1].append((scan, conditions))
    except RecursionError:  # the query can still be executed without an index
        return {}
    return found


def _lookup(index: Index, state: CatalogState, asked: _Asked) -> Lookup | None:
    places = range(len(index.keys))
    scans: dict[int, tuple[Key, ...]] = {}
    for scan, conditions in asked:
        known = _keys(index, state, scan, conditions)
        if len(known) < len(places) or scan.columns[0].id in scans:  # or the same scan occurs twice in the plan
            return None
        scans[scan.columns[0].id] = tuple(known[place] for place in places)
    return Lookup(index.id, scans)


def _keys(index: Index, state: CatalogState, scan: Scan, conditions: Sequence[Expression]) -> dict[int, Key]:
    """The keys among the conditions, by their positions in the index key."""
    wanted = index_keys(state.relation(index.on).columns, index.keys)
    return {key.column: key for key in reversed(keys_of(conditions, _numbering(scan, wanted)))}


def _numbering(scan: Scan, wanted: Sequence[int | Expression]) -> Numbers:
    """Maps the scan's columns, and expressions over them, to their positions in the index key."""
    numbers = {column.id: number for number, column in enumerate(scan.columns)}
    columns = {column.id: column for column in scan.columns}
    places: dict[Any, int] = {}
    for place, key in enumerate(wanted):
        if isinstance(key, int):
            places[key] = place
            continue

        def own(node: Any) -> Any | None:
            return ColumnRef(scan.columns[node.column.id - 1]) if isinstance(node, ColumnRef) else None

        places[transform(key, own)] = place

    def number_of(expression: Expression) -> int | None:
        if isinstance(expression, ColumnRef) and expression.column.id in columns:
            return places.get(numbers[expression.column.id])
        try:
            return places.get(expression)
        except TypeError:  # not hashable: the expression contains a list of values, which no key does
            return None

    return number_of


def _asked(root: Relation) -> Iterator[tuple[Scan, Sequence[Expression]]]:
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
