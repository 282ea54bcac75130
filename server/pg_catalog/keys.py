"""PRIMARY KEY and UNIQUE constraints, and the column numbers of index keys."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from server.pg_catalog import oids
from server.sql.index_keys import key_column


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint and its index. `columns` are numbers from 1.

    `attributes`: as in `catalog.keys.Key`.
    """

    oid: int
    name: str
    columns: tuple[int, ...]
    primary: bool
    enforced: bool
    nulls_distinct: bool
    deferrable: bool
    deferred: bool
    attributes: str

    @property
    def text(self) -> str:
        """The constraint without its columns."""
        return "PRIMARY KEY" if self.primary else "UNIQUE" if self.nulls_distinct else "UNIQUE NULLS NOT DISTINCT"


def keys_of(table: Item) -> list[Key]:
    """Returns a table's keys; an empty list for another item."""
    if not isinstance(table, Table):
        return []
    numbers = {column.name: number for number, column in enumerate(table.columns, 1)}
    return [
        Key(
            oids.key_oid(table.id, key.number),
            key.name,
            tuple(numbers[name] for name in key.columns),
            key.is_primary,
            key.is_enforced,
            key.nulls_distinct,
            key.deferrable,
            key.deferred,
            key.attributes,
        )
        for key in table.keys
    ]


def key_column_number(key: str, columns: tuple[Column, ...]) -> int:
    """Returns the number, from 1, of the column that is the index key; 0 for an expression."""
    number = key_column(key, columns)
    return 0 if number is None else number + 1
