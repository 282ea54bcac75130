"""The capabilities of items: to have columns, a stored query, a history, rows in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from catalog.ids import ObjectId, types_in
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.roles import Privilege

_READ_AND_WRITE = frozenset(
    (
        Privilege.INSERT,
        Privilege.SELECT,
        Privilege.UPDATE,
        Privilege.DELETE,
        Privilege.TRUNCATE,
        Privilege.REFERENCES,
        Privilege.TRIGGER,
        Privilege.MAINTAIN,
    )
)


@dataclass(frozen=True)
class Relation(Item):
    """An item with columns, which can be named in FROM."""

    columns: tuple[Column, ...]

    privileges = _READ_AND_WRITE
    default_acl_kind = "r"
    is_indexable = True

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return self._types_of_columns

    @cached_property
    def _types_of_columns(self) -> frozenset[ObjectId]:
        """The user-defined types and domains."""
        domains = (column.domain.id for column in self.columns if column.domain is not None)
        return frozenset(domains).union(*map(types_in, {column.type for column in self.columns}))


@dataclass(frozen=True)
class DerivedRelation(Relation):
    """A relation whose rows are the result of a stored query.

    `query` is the SELECT with every relation named by id (`"$id"."u12"`), so that a rename does not change it.
    `uses` are the relations that the text names directly, `types` the user-defined types.
    """

    query: str
    uses: frozenset[ObjectId]
    types: frozenset[ObjectId] = field(default=frozenset(), kw_only=True)

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return self.uses | self.types | super().depends_on

    def stored(self) -> dict[str, object]:
        types = {"types": sorted(self.types)} if self.types else {}
        return {"query": self.query, "uses": sorted(self.uses), **types}


@dataclass(frozen=True)
class Retained(Item):
    """An item with a `since`: its history can be read and held.

    `retain_ms` is RETAIN HISTORY in milliseconds: how much history stays readable without a hold. None is the server's
    default, 0 retains all history.
    """

    retain_ms: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Collection(Relation, Retained):
    """A relation whose rows are in the log, with its own frontiers."""


@dataclass(frozen=True)
class WrittenCollection(Collection):
    """A collection whose rows are written by commits. Its `upper` is that of all tables, with one exception.

    `has_upstream_times`: its changes have the timestamps of the upstream of its source, and its `upper` is its own.
    """

    @property
    def has_upstream_times(self) -> bool:
        return False
