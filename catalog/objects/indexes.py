"""Indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import StoredItem
from catalog.objects.relations import Retained


@dataclass(frozen=True)
class Index(Retained):
    """`keys`: SQL expressions over the columns of `on`. The index has its own `since` (see `Frontiers`).

    `is_unique`: no two rows of the table `on` have the same key. `nulls_distinct`: as in `Key`. `condition`: an SQL
    expression, or ""; only rows for which it is true are compared. The index keeps all rows. The other fields have no
    effect and are shown by the system catalogs: `method` is an access method, `included` are column names as SQL text,
    `options` are pg_index.indoption, and `classes` are operator classes, "" for the default one. The last two have an
    item for each key, or none.
    """

    on: ObjectId
    keys: tuple[str, ...]
    is_unique: bool = False
    nulls_distinct: bool = True
    method: str = "btree"
    included: tuple[str, ...] = ()
    options: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    condition: str = ""

    kind = "index"
    plural = "indexes"
    relkind = "i"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset((self.on,))

    @property
    def part_of(self) -> ObjectId | None:
        return self.on

    def stored(self) -> dict[str, object]:
        unique = {"unique": True, "nulls_distinct": self.nulls_distinct} if self.is_unique else {}
        shown: dict[str, object] = {"method": self.method} if self.method != "btree" else {}
        others = {
            "included": self.included,
            "options": self.options,
            "classes": self.classes,
            "condition": self.condition,
        }
        for name, value in others.items():
            if value:
                shown[name] = value
        return {"on": self.on, "keys": self.keys, "retain_ms": self.retain_ms, **unique, **shown}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            given["on"],
            tuple(given["keys"]),
            given.get("unique", False),
            given.get("nulls_distinct", True),
            given.get("method", "btree"),
            tuple(given.get("included", ())),
            tuple(given.get("options", ())),
            tuple(given.get("classes", ())),
            given.get("condition", ""),
            retain_ms=given.get("retain_ms"),
        )
