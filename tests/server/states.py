"""Catalog states for tests that plan without a server."""

from __future__ import annotations

from collections.abc import Mapping

from catalog import builtin
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.namespaces import Database, Schema
from catalog.objects.tables import Table
from catalog.state import CatalogState
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, QueryPlan, plan_query


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


def state_with_tables(tables: Mapping[str, Mapping[str, str]]) -> CatalogState:
    """A state with tables: the types of their columns, by the names of tables and columns."""
    state = empty_state()
    for name, columns in tables.items():
        id, state = state.new_id()
        state = state.with_item(Table(id, ObjectId("u2"), name, tuple(Column(c, t) for c, t in columns.items())))
    return state


def planned_for_maintenance(sql: str, state: CatalogState) -> QueryPlan:
    """The plan of a query that is to be maintained."""
    context = PlanContext(state=state, database="materialize", search_path=("public",), user="materialize")
    return plan_query(parse_query(sql), context, maintained=True)
