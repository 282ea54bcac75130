"""Which relations of a query can be read by way of an index: those of which it looks at rows with given keys only.

How it is known: conditions are pushed down to the scans as `rewrite.filters` does, so what is asked of the relation
anywhere in the query are rows that meet them. The query itself runs as it was planned, over these rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.hashing import Hashes, key_codes
from catalog.objects import CatalogState, Index, ObjectId
from server.sql.constant import Bindings
from server.sql.expressions import ColumnRef, Expression, children, transform
from server.sql.index_keys import index_keys
from server.sql.keys import Key, Numbers, keys_of
from server.sql.relations import Filter, Relation, Scan
from server.sql.rewrite.filters import filters_down
from server.sql.rewrite.nodes import parts

COMBINED_MAX = 10_000  # combinations of values of several columns that are looked up; more are not worth it


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """`scans`: for each scan of the relation in the query, by the id of its first column, what the key's columns are.

    A key's `column` is its place in the index's key.
    """

    index: ObjectId
    scans: Mapping[int, tuple[Key, ...]]

    @property
    def width(self) -> int:
        """How many columns the key has."""
        return len(next(iter(self.scans.values())))

    def codes(self, bindings: Bindings) -> Hashes | None:
        """The hashes of the keys that are looked for, ascending and distinct; None if they are too many."""
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
    """The relations of a query that an index can serve, each with the index whose key is the longest.

    `scanned`: the relations that it scans.
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
    """Indexes that would serve if their key had some of its columns only, and the places in the key of these."""
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
    """Of each relation that has indexes these, its scans and the conditions that are asked of all their rows."""
    found: dict[ObjectId, tuple[tuple[Index, ...], _Asked]] = {
        id: (indexes, []) for id in scanned if (indexes := state.indexes_on(id))
    }
    if not found:
        return {}
    try:
        for scan, conditions in _asked(filters_down(relation)):
            if scan.id in found:
                found[scan.id][1].append((scan, conditions))
    except RecursionError:  # it can be run all the same
        return {}
    return found


def _lookup(index: Index, state: CatalogState, asked: _Asked) -> Lookup | None:
    places = range(len(index.keys))
    scans: dict[int, tuple[Key, ...]] = {}
    for scan, conditions in asked:
        known = _keys(index, state, scan, conditions)
        if len(known) < len(places) or scan.columns[0].id in scans:  # or it stands twice in the plan
            return None
        scans[scan.columns[0].id] = tuple(known[place] for place in places)
    return Lookup(index.id, scans)


def _keys(index: Index, state: CatalogState, scan: Scan, conditions: Sequence[Expression]) -> dict[int, Key]:
    """What is asked of the columns of the index's key, by their places in it."""
    wanted = index_keys(state.items[index.on].columns, index.keys)
    return {key.column: key for key in reversed(keys_of(conditions, _numbering(scan, wanted)))}


def _numbering(scan: Scan, wanted: Sequence[int | Expression]) -> Numbers:
    """The places in the index's key of the scan's columns and of expressions over them."""
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
        except TypeError:  # it has a list of values, which no key has
            return None

    return number_of


def _asked(root: Relation) -> Iterator[tuple[Scan, Sequence[Expression]]]:
    """Every scan, subqueries included, with the conditions that are asked of all its rows."""
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
