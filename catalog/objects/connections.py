"""Connections to external systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import USAGE_ONLY, Item, StoredItem


@dataclass(frozen=True)
class Connection(Item):
    """The address of an external system. `system`: kafka, confluent schema registry or postgres.

    `options` are those with plain values, `secrets` those that name a secret, both by lower-case name.
    """

    system: str
    options: Mapping[str, str]
    secrets: Mapping[str, ObjectId]

    kind = "connection"
    plural = "connections"
    privileges = USAGE_ONLY

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset(self.secrets.values())

    def stored(self) -> dict[str, object]:
        return {"system": self.system, "options": dict(self.options), "secrets": dict(self.secrets)}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        definition = row.definition
        return cls(row.id, row.schema_id, row.name, definition["system"], definition["options"], definition["secrets"])
