"""Views and materialized views."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from catalog.objects.catalog_object import StoredItem
from catalog.objects.relations import Collection, DerivedRelation


@dataclass(frozen=True)
class View(DerivedRelation):
    """A view is expanded to its query where it is read.

    `replacements`: how often CREATE OR REPLACE VIEW has given it another query. `check_option`: the kind of its WITH
    CHECK OPTION, `local` or `cascaded`; empty without one. `derived`: what was computed from the query, by a name. It
    is kept as long as the view.
    """

    replacements: int = field(default=0, kw_only=True)
    check_option: str = field(default="", kw_only=True)
    derived: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    kind = "view"
    plural = "views"
    relkind = "v"

    @property
    def written_as(self) -> tuple[str, str]:
        """What determines how rows are written through the view."""
        return self.query, self.check_option

    def stored(self) -> dict[str, object]:
        replacements = {"replacements": self.replacements} if self.replacements else {}
        check_option = {"check_option": self.check_option} if self.check_option else {}
        return {**super().stored(), **replacements, **check_option}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        query, uses = row.definition["query"], frozenset(row.definition["uses"])
        return cls(
            *(row.id, row.schema_id, row.name, row.columns, query, uses),
            types=frozenset(row.definition.get("types", ())),
            replacements=row.definition.get("replacements", 0),
            check_option=row.definition.get("check_option", ""),
        )


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
