"""`CatalogObject`, the base class of all objects, and `Item`, that of the objects in schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.roles import Privilege

USAGE_AND_CREATE = frozenset((Privilege.USAGE, Privilege.CREATE))
USAGE_ONLY = frozenset((Privilege.USAGE,))
SELECT_ONLY = frozenset((Privilege.SELECT,))


class CatalogObject:
    """The attributes that all kinds have: a name for the kind, and privileges."""

    kind: ClassVar[str]
    """The kind as messages name it, such as `materialized view`."""
    privileges: ClassVar[frozenset[Privilege]] = frozenset()
    """The privileges that apply to the kind: the meaning of ALL. The owner has them by default."""
    default_acl_kind: ClassVar[str | None] = None
    """pg_default_acl.defaclobjtype of the kind; None if ALTER DEFAULT PRIVILEGES does not apply to it."""

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        """The privileges that PUBLIC has by default."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as the catalog's file has it. `definition` is what the kind's `stored` returned."""

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]
    definition: Mapping[str, Any]


@dataclass(frozen=True)
class Item(CatalogObject):
    """An object in a schema."""

    id: ObjectId
    schema_id: ObjectId
    name: str

    plural: ClassVar[str]
    """The objects that SHOW lists together with this kind, such as `materialized views`."""
    named_as: ClassVar[str | None] = None
    """The kind that statements such as DROP name, if it is not `kind`."""
    relkind: ClassVar[str | None] = None
    """pg_class.relkind; None for a kind that PostgreSQL's catalogs do not show."""
    is_indexable: ClassVar[bool] = False

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        """The items without which this one cannot exist."""
        return frozenset()

    @property
    def part_of(self) -> ObjectId | None:
        """The item that this one belongs to: it has the other's owner, and is dropped with it."""
        return None

    @property
    def statement_kind(self) -> str:
        """The kind that DROP, ALTER, COMMENT and SHOW CREATE name."""
        return self.named_as or self.kind

    def stored(self) -> dict[str, object]:
        """The definition as JSON values, without id, schema, name and columns. TypeError for a built-in kind."""
        raise TypeError(f'{self.kind} "{self.name}" is built-in and not stored')

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        """The inverse of `stored`. Definitions of format 1 lack `retain_ms`."""
        raise TypeError(f"{cls.kind}s are built-in and not stored")
