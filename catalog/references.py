"""The foreign keys of a catalog, and the keys and unique indexes on which they rely."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from catalog.foreign_keys import ForeignKey
from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.state import CatalogState


def references_to(state: CatalogState, gone: AbstractSet[ObjectId]) -> list[tuple[Table, ForeignKey]]:
    """The foreign keys that reference one of these tables, or rely on one of these unique indexes."""
    indexed = {item.on for id in gone if isinstance(item := state.items[id], Index)} - gone
    found = []
    for table in state.items_of(Table):
        for key in table.foreign_keys:
            if key.referenced in gone:
                found.append((table, key))
            elif key.referenced in indexed:
                relied = referenced_key(state, key)
                if isinstance(relied, Index) and relied.id in gone:
                    found.append((table, key))
    return found


def without_references(state: CatalogState, references: Iterable[tuple[Table, ForeignKey]]) -> CatalogState:
    """The state without these foreign keys of these tables."""
    if not (references := list(references)):
        return state
    items = dict(state.items)
    for owner, foreign_key in references:
        table = items[owner.id]
        assert isinstance(table, Table)
        left = tuple(key for key in table.foreign_keys if key.number != foreign_key.number)
        items[table.id] = replace(table, foreign_keys=left)
    return replace(state, items=items)


def referenced_key(state: CatalogState, foreign_key: ForeignKey) -> Key | Index | None:
    """The key or the unique index of the referenced table that a foreign key relies on."""
    table = state.items[foreign_key.referenced]
    assert isinstance(table, Table)
    return key_of_columns(state, table, foreign_key.others)


def key_of_columns(state: CatalogState, table: Table, columns: Iterable[str]) -> Key | Index | None:
    """The first key or unique index of a table whose columns are these, in any order."""
    wanted = set(columns)
    for key in table.keys:
        if set(key.columns) == wanted:
            return key
    quoted = {'"' + name.replace('"', '""') + '"': name for name in wanted}
    for index in state.indexes_on(table.id):
        if (
            index.is_unique
            and not index.condition
            and {quoted.get(key.strip(), key.strip()) for key in index.keys} == wanted
        ):
            return index
    return None
