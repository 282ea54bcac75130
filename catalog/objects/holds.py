"""Holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item, StoredItem


@dataclass(frozen=True)
class Hold(Item):
    """A durable read hold on the items `on`, which never change. `max_lag_ms` bounds its lag.

    Its time and status are in `catalog.holds`.
    """

    on: tuple[ObjectId, ...]
    max_lag_ms: int

    kind = "hold"
    plural = "holds"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset(self.on)

    def stored(self) -> dict[str, object]:
        return {"on": self.on, "max_lag_ms": self.max_lag_ms}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        return cls(row.id, row.schema_id, row.name, tuple(row.definition["on"]), row.definition["max_lag_ms"])
