"""PRIMARY KEY and UNIQUE constraints, and the column numbers of index keys."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects import Column, Item, Table
from server.pg_catalog import oids
from server.sql.index_keys import key_column


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint and its index. `columns` are numbers from 1."""

    oid: int
    name: str
    columns: tuple[int, ...]
    primary: bool


def keys_of(table: Item) -> list[Key]:
    """Returns a table's keys with PostgreSQL's default names; an empty list for another item.

    The catalog does not record which key is the primary key, so the first key whose columns are all NOT NULL is used.
    """
    if not isinstance(table, Table):
        return []
    numbers = {column.name: number for number, column in enumerate(table.columns, 1)}
    required = {column.name for column in table.columns if not column.nullable}
    primary = next((number for number, key in enumerate(table.keys) if required.issuperset(key)), None)
    return [
        Key(
            oids.key_oid(table.id, number),
            f"{table.name}_pkey" if number == primary else f"{table.name}_{'_'.join(key)}_key",
            tuple(numbers[name] for name in key),
            number == primary,
        )
        for number, key in enumerate(table.keys)
    ]


def key_column_number(key: str, columns: tuple[Column, ...]) -> int:
    """Returns the number, from 1, of the column that is the index key; 0 for an expression."""
    number = key_column(key, columns)
    return 0 if number is None else number + 1
