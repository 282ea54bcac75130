"""What CREATE and SHOW do for each kind of item. DROP, RENAME, OWNER and COMMENT are the same for all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.objects.catalog_object import Item
from catalog.objects.connections import Connection
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.secrets import NamedSecret
from catalog.objects.sequences import Sequence
from catalog.objects.sinks import Sink
from catalog.objects.sources import Source, SourceTable, Subsource
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.objects.views import MaterializedView, View
from catalog.state import CatalogState
from protocol.pgwire.types import TEXT
from server.execution.ddl import (
    connections,
    domains,
    holds,
    indexes,
    secrets,
    sequences,
    sinks,
    sources,
    tables,
    types,
    views,
)
from server.session_state.context import Context
from server.sql.grammar.statements.domains import CreateDomain
from server.sql.grammar.statements.holds import CreateHold
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.sequences import CreateSequence
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.statements.sources import (
    AddSubsources,
    CreateConnection,
    CreateSecret,
    CreateSource,
    CreateSourceTable,
)
from server.sql.grammar.statements.tables import CreateTable
from server.sql.grammar.statements.types import CreateEnum
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView
from server.sql.plan import Field


def _name(context: Context, item: Item) -> tuple[object, ...]:
    return (item.name,)


@dataclass(frozen=True, slots=True)
class Kind:
    """The functions of a kind of item."""

    statement: type[Definition]
    create: Callable[[Context, Any], CatalogState]
    """Executes `statement`: returns the next catalog state."""
    show_create: Callable[[Context, Any], str]
    """The CREATE statement of an item, for SHOW CREATE."""
    show_fields: tuple[Field, ...] = (Field("name", TEXT, False),)
    """The columns of SHOW for this kind, such as SHOW INDEXES."""
    show_row: Callable[[Context, Any], tuple[object, ...]] = _name
    """The row of an item in SHOW."""


KINDS: Mapping[type[Item], Kind] = {
    Table: Kind(CreateTable, tables.create, tables.show_create),
    View: Kind(CreateView, views.create, views.show_create),
    MaterializedView: Kind(CreateMaterializedView, views.create, views.show_create),
    Index: Kind(CreateIndex, indexes.create, indexes.show_create, indexes.SHOW_FIELDS, indexes.show_row),
    Hold: Kind(CreateHold, holds.create, holds.show_create, holds.SHOW_FIELDS, holds.show_row),
    NamedSecret: Kind(CreateSecret, secrets.create, secrets.show_create),
    Connection: Kind(
        CreateConnection,
        connections.create,
        connections.show_create,
        connections.SHOW_FIELDS,
        connections.show_row,
    ),
    Source: Kind(CreateSource, sources.create, sources.show_create, sources.SHOW_FIELDS, sources.show_row),
    Subsource: Kind(
        AddSubsources,
        sources.add_subsources,
        sources.show_create_subsource,
        sources.SHOW_FIELDS,
        sources.show_row,
    ),
    Sink: Kind(CreateSink, sinks.create, sinks.show_create, sinks.SHOW_FIELDS, sinks.show_row),
    Sequence: Kind(CreateSequence, sequences.create, sequences.show_create),
    Domain: Kind(CreateDomain, domains.create, domains.show_create),
    EnumType: Kind(CreateEnum, types.create, types.show_create),
    SourceTable: Kind(CreateSourceTable, sources.create_table, sources.show_create_table),
}
