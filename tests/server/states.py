"""Catalog states for tests that plan without a server."""

from __future__ import annotations

from catalog import builtin
from catalog.objects import Column, Database, ObjectId, Schema, Table
from catalog.state import CatalogState


def empty_state() -> CatalogState:
    """The built-in schemas, and the database `materialize` with the schema `public`."""
    database, public = Database(ObjectId("u1"), "materialize"), Schema(ObjectId("u2"), ObjectId("u1"), "public")
    return CatalogState(
        databases={database.id: database},
        schemas={s.id: s for s in (*builtin.SCHEMAS, public)},
        items={t.id: t for t in builtin.TABLES},
        next_id=10,
    )


def state_with_table(name: str, **columns: str) -> tuple[CatalogState, ObjectId]:
    """A state with one table more, and the table's id; `columns` are name = type."""
    id, state = empty_state().new_id()
    table = Table(id, ObjectId("u2"), name, tuple(Column(c, type) for c, type in columns.items()))
    return state.with_item(table), id
