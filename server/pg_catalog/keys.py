"""PRIMARY KEY and UNIQUE constraints, and the columns that keys of an index are."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects import Column, Table
from server.pg_catalog import oids
from server.sql.index_keys import key_column


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint; PostgreSQL has an index for each."""

    oid: int
    name: str
    columns: tuple[int, ...]
    primary: bool


def keys_of(table: Table) -> list[Key]:
    """A table's keys under the names that PostgreSQL gives. The first of columns that are NOT NULL is the primary one:
    the catalog keeps no more of it."""
    places = {column.name: place for place, column in enumerate(table.columns, 1)}
    required = {column.name for column in table.columns if not column.nullable}
    primary = next((number for number, key in enumerate(table.keys) if required.issuperset(key)), None)
    return [
        Key(
            oids.key_oid(table.id, number),
            f"{table.name}_pkey" if number == primary else f"{table.name}_{'_'.join(key)}_key",
            tuple(places[name] for name in key),
            number == primary,
        )
        for number, key in enumerate(table.keys)
    ]


def key_place(key: str, columns: tuple[Column, ...]) -> int:
    """The place, from 1, of the column that an index key is; 0 for an expression."""
    number = key_column(key, columns)
    return 0 if number is None else number + 1
