"""Sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import StoredItem
from catalog.objects.columns import Column
from catalog.objects.relations import Relation
from catalog.roles import Privilege


@dataclass(frozen=True)
class Sequence(Relation):
    """A CREATE SEQUENCE, or the sequence of a SERIAL or identity column. Its values are in `catalog.sequence_state`.

    `type`: int2, int4 or int8. `generation` counts the restarts: each has a state of its own, which begins with
    `first`. `owner_table`, `owner_column`: the column that owns it. `is_identity`: it belongs to an identity column.
    """

    type: str = "int8"
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = 2**63 - 1
    cache: int = 1
    cycle: bool = False
    owner_table: ObjectId | None = None
    owner_column: str | None = None
    is_identity: bool = False
    generation: int = 0
    first: int = 1

    kind = "sequence"
    plural = "sequences"
    relkind = "S"
    privileges = frozenset((Privilege.SELECT, Privilege.UPDATE, Privilege.USAGE))
    default_acl_kind = "S"
    is_indexable = False

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset() if self.owner_table is None else frozenset((self.owner_table,))

    @property
    def part_of(self) -> ObjectId | None:
        return self.owner_table

    def stored(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in _SEQUENCE_FIELDS}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        return cls(row.id, row.schema_id, row.name, SEQUENCE_COLUMNS, **row.definition)


SEQUENCE_COLUMNS = (
    Column("last_value", "int8", False),
    Column("log_cnt", "int8", False),
    Column("is_called", "bool", False),
)
_SEQUENCE_FIELDS = (
    *("type", "start", "increment", "minimum", "maximum", "cache", "cycle", "owner_table", "owner_column"),
    *("is_identity", "generation", "first"),
)
