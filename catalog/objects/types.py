"""User-defined types: enumerated types and domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from catalog.ids import ObjectId, types_in
from catalog.objects.catalog_object import USAGE_ONLY, Item, StoredItem
from catalog.objects.columns import Check, stored_checks
from catalog.roles import Privilege


@dataclass(frozen=True)
class EnumType(Item):
    """A CREATE TYPE ... AS ENUM. `labels` and `positions` are parallel and in order (see `enum_positions`).

    `array_id`: of its array type.
    """

    labels: tuple[str, ...]
    positions: tuple[str, ...]
    array_id: ObjectId

    kind = "type"
    plural = "types"
    privileges = USAGE_ONLY
    default_acl_kind = "T"

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return USAGE_ONLY

    def stored(self) -> dict[str, object]:
        return {"labels": self.labels, "positions": self.positions, "array_id": self.array_id}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            tuple(given["labels"]),
            tuple(given["positions"]),
            ObjectId(given["array_id"]),
        )


@dataclass(frozen=True)
class Domain(Item):
    """A CREATE DOMAIN. `base`: the spelling of its base type. `default` and the checks are SQL text, over `value`."""

    base: str
    not_null: bool = False
    default: str | None = None
    checks: tuple[Check, ...] = ()

    kind = "domain"
    plural = "types"
    privileges = USAGE_ONLY
    default_acl_kind = "T"

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return USAGE_ONLY

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        texts = [self.base, self.default or "", *(check.expression for check in self.checks)]
        return frozenset().union(*map(types_in, texts))

    def stored(self) -> dict[str, object]:
        checks = stored_checks(self.checks)
        return {"base": self.base, "not_null": self.not_null, "default": self.default, "checks": checks}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        checks = tuple(Check(*check) for check in given["checks"])
        return cls(row.id, row.schema_id, row.name, given["base"], given["not_null"], given["default"], checks)
