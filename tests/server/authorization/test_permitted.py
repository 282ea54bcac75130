"""What is remembered about privileges holds for one plan, one role and one catalog state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog import persistence
from catalog.acls import AclItem
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.roles import MATERIALIZE, Privilege, Role
from catalog.state import CatalogState
from catalog.store import Store
from protocol.pgwire.errors import PgError
from server.authorization import privileges
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, QueryPlan, plan_query

ANN, BOB = ObjectId("u100"), ObjectId("u101")
T, U = ObjectId("u102"), ObjectId("u103")


@pytest.fixture
def state(tmp_path: Path) -> CatalogState:
    """Tables `t` and `u`, and roles `ann`, who may read `t`, and `bob`."""
    store = Store(tmp_path)
    state = persistence.load(store)
    store.close()
    (database,) = state.databases.values()
    public = state.schema_named(database.id, "public")
    assert public is not None
    for id, name in ((T, "t"), (U, "u")):
        state = state.with_item(Table(id, public.id, name, (Column("a", "int8"),)))
    state = state.with_role(Role(ANN, "ann")).with_role(Role(BOB, "bob"))
    return state.with_acls({T: (AclItem(ANN, MATERIALIZE.id, frozenset((Privilege.SELECT,))),)})


def planned(state: CatalogState, query: str) -> QueryPlan:
    return plan_query(parse_query(query), PlanContext(state, "materialize", ("public",), "ann", "UTC", None), None)  # type: ignore[arg-type]


def may(state: CatalogState, role: ObjectId, plan: QueryPlan) -> bool:
    try:
        privileges.require_query(state, role, plan)
    except PgError as error:
        return error.sqlstate != "42501"
    return True


def test_a_plan_remembers_one_role_in_one_state(state: CatalogState) -> None:
    plan = planned(state, "SELECT a FROM t")
    revoked = state.with_acls({T: ()})
    granted = state.with_acls({T: (*state.acl(T), AclItem(BOB, MATERIALIZE.id, frozenset((Privilege.SELECT,))))})
    for _ in range(2):
        assert may(state, ANN, plan)
        assert may(state, ANN, plan)
        assert not may(state, BOB, plan)
        assert not may(revoked, ANN, plan)
        assert may(granted, BOB, plan)
        assert not may(state, BOB, plan)
        assert may(state, MATERIALIZE.id, plan)
        assert not may(state, BOB, plan)


def test_a_changed_plan_remembers_nothing(state: CatalogState) -> None:
    plan = planned(state, "SELECT t.a FROM t, u")
    assert not may(state, ANN, plan)
    reduced = replace(plan, uses=frozenset((T,)))
    assert may(state, ANN, reduced)
    assert not may(state, ANN, plan)
    assert not may(state, ANN, replace(reduced, uses=plan.uses))


def test_usable_paths_are_those_of_the_state(state: CatalogState) -> None:
    path = ("public", "nothing")
    (database,) = state.databases.values()
    public = state.schema_named(database.id, "public")
    assert public is not None
    hidden = state.with_acls({public.id: ()})
    shown = state.with_acls({public.id: (AclItem(ANN, MATERIALIZE.id, frozenset((Privilege.USAGE,))),)})
    for _ in range(2):
        assert privileges.usable_path(shown, ANN, "materialize", path) == path
        assert privileges.usable_path(shown, BOB, "materialize", path) == ("nothing",)
        assert privileges.usable_path(state, ANN, "materialize", path) == path
        assert privileges.usable_path(hidden, ANN, "materialize", path) == ("nothing",)
        assert privileges.usable_path(hidden, MATERIALIZE.id, "materialize", path) == path


def test_the_number_of_usable_paths_is_bounded(state: CatalogState) -> None:
    for number in range(2 * privileges.PATHS_MAX):
        assert privileges.usable_path(state, ANN, "materialize", (f"s{number}",)) == (f"s{number}",)
        assert len(state.usable_paths) <= privileges.PATHS_MAX
    before = len(state.usable_paths)
    long = ("x" * (privileges.PATH_CHARS_MAX + 1),)
    assert privileges.usable_path(state, ANN, "materialize", long) == long
    assert len(state.usable_paths) == before
