"""The kinds of items, by name, and how messages and system tables spell the name of a kind."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.objects.catalog_object import CatalogObject, Item
from catalog.objects.clusters import Cluster
from catalog.objects.connections import Connection
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.secrets import NamedSecret
from catalog.objects.sequences import Sequence
from catalog.objects.sinks import Sink
from catalog.objects.sources import Source, SourceTable, Subsource
from catalog.objects.system_tables import SystemTable
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.objects.views import MaterializedView, View
from catalog.roles import Privilege

KINDS: Mapping[str, type[Item]] = {
    kind.kind: kind
    for kind in (
        Table,
        View,
        MaterializedView,
        Index,
        Hold,
        NamedSecret,
        Connection,
        Source,
        Subsource,
        SourceTable,
        Sink,
        Sequence,
        EnumType,
        Domain,
        SystemTable,
    )
}
"""The class of each kind of item."""


def object_type(kind: str) -> str:
    """The kind as system tables name it, such as `materialized-view`."""
    return kind.replace(" ", "-")


def with_article(kind: str) -> str:
    """The kind with its article, such as `an index`."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def applicable_privileges(kind: str) -> frozenset[Privilege]:
    """The privileges that apply to a kind of object: the meaning of ALL."""
    classes: Mapping[str, type[CatalogObject]] = {**KINDS, **{c.kind: c for c in (Database, Schema, Cluster)}}
    return classes[kind].privileges
