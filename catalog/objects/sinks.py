"""Sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item, StoredItem
from catalog.source_definition import Format


@dataclass(frozen=True)
class Sink(Item):
    """A CREATE SINK: writes the changes of the collection `on` to an external system.

    `system`: file, postgres or kafka. `format` None: the external system has columns. `key`: the columns of KEY.
    `identity`: unique among all sinks of all servers, for what a sink stores in the external system. Its frontier is in
    `catalog.source_state`.
    """

    on: ObjectId
    system: str
    options: Mapping[str, str]
    format: Format | None
    with_snapshot: bool = True
    connection: ObjectId | None = None
    key: tuple[str, ...] = ()
    identity: str = ""

    kind = "sink"
    plural = "sinks"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        own = frozenset((self.on,)) if self.connection is None else frozenset((self.on, self.connection))
        return own | (self.format.registries if self.format is not None else frozenset())

    def stored(self) -> dict[str, object]:
        return {
            "on": self.on,
            "system": self.system,
            "options": dict(self.options),
            "format": self.format.stored() if self.format is not None else None,
            "with_snapshot": self.with_snapshot,
            "connection": self.connection,
            "key": list(self.key),
            "identity": self.identity,
        }

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            on=given["on"],
            system=given["system"],
            options=given["options"],
            format=Format.restored(given["format"]) if given["format"] is not None else None,
            with_snapshot=given["with_snapshot"],
            connection=given["connection"],
            key=tuple(given["key"]),
            identity=given["identity"],
        )
