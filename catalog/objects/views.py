"""Views and materialized views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.objects.catalog_object import StoredItem
from catalog.objects.relations import Collection, DerivedRelation


@dataclass(frozen=True)
class View(DerivedRelation):
    """A view is replaced by its query where it is read."""

    kind = "view"
    plural = "views"
    relkind = "v"

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        query, uses = row.definition["query"], frozenset(row.definition["uses"])
        types = frozenset(row.definition.get("types", ()))
        return cls(row.id, row.schema_id, row.name, row.columns, query, uses, types=types)


@dataclass(frozen=True)
class MaterializedView(DerivedRelation, Collection):
    """A view whose result is a collection."""

    kind = "materialized view"
    plural = "materialized views"
    relkind = "m"

    def stored(self) -> dict[str, object]:
        return {**DerivedRelation.stored(self), "retain_ms": self.retain_ms}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        query, uses = row.definition["query"], frozenset(row.definition["uses"])
        retain_ms, types = row.definition.get("retain_ms"), frozenset(row.definition.get("types", ()))
        return cls(row.id, row.schema_id, row.name, row.columns, query, uses, types=types, retain_ms=retain_ms)
