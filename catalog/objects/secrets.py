"""Secrets, and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.objects.catalog_object import USAGE_ONLY, Item, StoredItem


class Secret:
    """The value of a CREATE SECRET. `reveal` is the only way to it: repr, str and format do not show it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True)
class NamedSecret(Item):
    """A value that options of connections refer to. No statement and no system table shows it."""

    value: Secret

    kind = "secret"
    plural = "secrets"
    privileges = USAGE_ONLY

    def stored(self) -> dict[str, object]:
        return {"value": self.value.reveal()}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        return cls(row.id, row.schema_id, row.name, Secret(row.definition["value"]))
