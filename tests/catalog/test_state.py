"""Names, dependents, drops and renames in `CatalogState`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog import builtin
from catalog.drops import InUse, without_database, without_item, without_schema
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.relations import DerivedRelation
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from catalog.state import CatalogState, NameTaken

DB, OTHER_DB = Database(ObjectId("u1"), "materialize"), Database(ObjectId("u20"), "other")
PUBLIC, STAGING = Schema(ObjectId("u2"), DB.id, "public"), Schema(ObjectId("u3"), DB.id, "staging")
OTHER_PUBLIC = Schema(ObjectId("u21"), OTHER_DB.id, "public")
COLUMNS = (Column("a", "int4"),)


def table(id: str, name: str, schema: Schema = PUBLIC) -> Table:
    return Table(ObjectId(id), schema.id, name, COLUMNS)


def view(id: str, name: str, *uses: str, schema: Schema = PUBLIC) -> View:
    return View(ObjectId(id), schema.id, name, COLUMNS, "SELECT 1", frozenset(map(ObjectId, uses)))


def state_of(*items: Item) -> CatalogState:
    return CatalogState(
        databases={d.id: d for d in (DB, OTHER_DB)},
        schemas={s.id: s for s in (*builtin.SCHEMAS, PUBLIC, STAGING, OTHER_PUBLIC)},
        items={i.id: i for i in (*builtin.TABLES, *items)},
        next_id=100,
    )


def user_items(state: CatalogState) -> set[str]:
    return {id for id in state.items if id.startswith("u")}


class TestResolve:
    STATE = state_of(
        table("u4", "t"), table("u5", "t", STAGING), table("u6", "only", STAGING), table("u7", "t", OTHER_PUBLIC)
    )

    @pytest.mark.parametrize(
        ("name", "database", "path", "found"),
        [
            ("t", "materialize", ["public"], "u4"),
            ("t", "materialize", ["staging", "public"], "u5"),
            ("t", "materialize", ["nowhere", "public"], "u4"),
            ("t", "materialize", [], None),
            ("t", "other", ["public"], "u7"),
            ("t", "nowhere", ["public"], None),
            ("only", "materialize", ["public"], None),
            ("only", "materialize", ["public", "staging"], "u6"),
            ("T", "materialize", ["public"], None),  # the parser folds names to lower case, the catalog does not
            ("staging.t", "materialize", ["public"], "u5"),
            ("staging.t", "other", ["public"], None),
            ("other.public.t", "materialize", ["public"], "u7"),
            ("nowhere.public.t", "materialize", ["public"], None),
            ("materialize.nowhere.t", "materialize", ["public"], None),
            ("x.materialize.public.t", "materialize", ["public"], None),
            ("mz_nothing", "materialize", ["public"], None),
            ("mz_objects", "materialize", ["public"], builtin.MZ_OBJECTS.id),
            ("mz_objects", "nowhere", [], builtin.MZ_OBJECTS.id),
            ("mz_catalog.mz_objects", "other", [], builtin.MZ_OBJECTS.id),
            ("materialize.mz_catalog.mz_objects", "other", [], builtin.MZ_OBJECTS.id),
            ("nowhere.mz_catalog.mz_objects", "materialize", [], None),
            ("mz_frontiers", "materialize", ["public"], None),
            ("mz_internal.mz_frontiers", "materialize", ["public"], builtin.MZ_FRONTIERS.id),
        ],
    )
    def test_names_are_resolved_by_database_and_search_path(
        self, name: str, database: str, path: list[str], found: str | None
    ) -> None:
        item = self.STATE.resolve(tuple(name.split(".")), database, iter(path))
        assert (item.id if item is not None else None) == found

    def test_a_users_table_hides_a_system_table_only_if_the_search_path_says_so(self) -> None:
        state = self.STATE.with_item(table("u8", "mz_objects"))
        for path, found in [(["public"], builtin.MZ_OBJECTS.id), (["public", "mz_catalog"], "u8")]:
            item = state.resolve(("mz_objects",), "materialize", path)
            assert item is not None
            assert item.id == found

    def test_full_names(self) -> None:
        assert self.STATE.full_name(self.STATE.items[ObjectId("u7")]) == ("other", "public", "t")
        assert self.STATE.full_name(builtin.MZ_OBJECTS) == ("mz_catalog", "mz_objects")


class TestDependents:
    #  u10 <- u11 <- u13 <- u15     u11, u12 <- u14;  u16: index on u10, u17: index on u13
    STATE = state_of(
        table("u10", "t"),
        view("u11", "v", "u10"),
        view("u12", "w", "u10", schema=STAGING),
        MaterializedView(ObjectId("u13"), PUBLIC.id, "m", COLUMNS, "SELECT 1", frozenset({ObjectId("u11")})),
        view("u14", "x", "u11", "u12"),
        view("u15", "y", "u13", schema=OTHER_PUBLIC),
        Index(ObjectId("u16"), PUBLIC.id, "i", ObjectId("u10"), ("a",)),
        Index(ObjectId("u17"), PUBLIC.id, "j", ObjectId("u13"), ("a",)),
    )

    def test_dependents_are_ordered_by_distance_and_unique(self) -> None:
        ids = [d.id for d in self.STATE.dependents(ObjectId("u10"))]
        assert set(ids[:3]) == {"u11", "u12", "u16"}
        assert set(ids[3:5]) == {"u13", "u14"}
        assert set(ids[5:]) == {"u15", "u17"}
        assert len(ids) == 7
        assert self.STATE.dependents(ObjectId("u14")) == []

    def test_changed_items_are_new_or_other_than_before(self) -> None:
        before = state_of(table("u4", "t"), view("u5", "v", "u4"), table("u6", "gone"))
        after = without_item(before, ObjectId("u6")).with_item(table("u7", "new")).with_item(table("u4", "renamed"))
        assert after.changed_items(before) == ("u4", "u7")
        assert after.changed_items(after) == ()
        assert replace(before, version=7).changed_items(before) == ()

    def test_collections_that_a_relation_depends_on(self) -> None:
        both = frozenset((ObjectId("u14"), ObjectId("u15"), builtin.MZ_OBJECTS.id))
        assert self.STATE.collections(both) == {"u10", "u13"}
        assert self.STATE.collections(both, through=DerivedRelation) == {"u10"}
        assert self.STATE.collections([ObjectId("u13")]) == {"u13"}

    def test_drop_is_refused_while_an_object_depends_on_it(self) -> None:
        with pytest.raises(InUse) as caught:
            without_item(self.STATE, ObjectId("u13"))
        assert (caught.value.kind, caught.value.name) == ("materialized view", "m")
        assert caught.value.dependents == ((("view", "y"), ("materialized view", "m")),)

    def test_indexes_are_dropped_with_their_relation(self) -> None:
        state = without_item(without_item(self.STATE, ObjectId("u15")), ObjectId("u13"))
        assert user_items(state) == {"u10", "u11", "u12", "u14", "u16"}

    def test_cascade_drops_all_dependents(self) -> None:
        assert user_items(without_item(self.STATE, ObjectId("u11"), cascade=True)) == {"u10", "u12", "u16"}
        assert user_items(without_item(self.STATE, ObjectId("u10"), cascade=True)) == set()
        assert len(user_items(self.STATE)) == 8, "states do not change"

    def test_schemas(self) -> None:
        with pytest.raises(InUse, match="staging"):
            without_schema(self.STATE, STAGING.id)
        state = without_schema(self.STATE, STAGING.id, cascade=True)
        assert STAGING.id not in state.schemas
        assert user_items(state) == user_items(self.STATE) - {"u12", "u14"}, "users in other schemas go too"
        assert user_items(without_schema(self.STATE, PUBLIC.id, cascade=True)) == set()
        empty = without_schema(state_of(), PUBLIC.id)
        assert empty.schema_named(DB.id, "public") is None

    def test_databases(self) -> None:
        with pytest.raises(InUse, match="other"):
            without_database(self.STATE, OTHER_DB.id, contents=False, cascade=False)
        with pytest.raises(InUse, match='database "materialize"'):
            without_database(self.STATE, DB.id, contents=True, cascade=False)
        without_database(self.STATE, OTHER_DB.id, contents=True, cascade=False)
        state = without_database(self.STATE, DB.id, contents=True, cascade=True)
        assert state.database_named("materialize") is None
        assert set(state.schemas) == {OTHER_PUBLIC.id, *(s.id for s in builtin.SCHEMAS)}
        assert user_items(state) == set(), "a view in the other database used one in this"
        empty = without_database(state_of(), OTHER_DB.id, contents=False, cascade=False)
        assert empty.database_named("other") is None


class TestChange:
    STATE = state_of(table("u4", "t"), view("u5", "v", "u4"))

    def test_rename_changes_the_name_and_keeps_the_dependents(self) -> None:
        state = self.STATE.with_item(replace(self.STATE.items[ObjectId("u4")], name="renamed"))
        assert state.item_named(PUBLIC.id, "t") is None
        renamed = state.item_named(PUBLIC.id, "renamed")
        assert renamed is not None
        assert [d.id for d in state.dependents(renamed.id)] == ["u5"]
        assert self.STATE.item_named(PUBLIC.id, "t") is not None, "states do not change"

    def test_rename_of_a_schema_and_a_database(self) -> None:
        state = self.STATE.with_schema(replace(PUBLIC, name="p")).with_database(replace(DB, name="d"))
        item = state.resolve(("d", "p", "t"), "d", [])
        assert item is not None
        assert state.full_name(item) == ("d", "p", "t")
        assert state.resolve(("t",), "materialize", ["public"]) is None

    def test_renaming_to_the_same_name_is_no_conflict(self) -> None:
        assert self.STATE.with_item(self.STATE.items[ObjectId("u4")]) == self.STATE
        assert self.STATE.with_schema(PUBLIC).with_database(DB) == self.STATE

    def test_a_name_conflict_names_the_existing_object(self) -> None:
        with pytest.raises(NameTaken) as caught:
            self.STATE.with_item(table("u9", "v"))
        assert (caught.value.kind, caught.value.name) == ("view", "v")
        with pytest.raises(NameTaken):
            self.STATE.with_item(replace(self.STATE.items[ObjectId("u5")], name="t"))
        with pytest.raises(NameTaken):
            self.STATE.with_items((table("u9", "new"), table("u10", "new")))
        with pytest.raises(NameTaken):
            self.STATE.with_schema(Schema(ObjectId("u9"), DB.id, "staging"))
        with pytest.raises(NameTaken):
            self.STATE.with_schema(Schema(ObjectId("u9"), DB.id, "pg_catalog"))
        with pytest.raises(NameTaken):
            self.STATE.with_database(Database(ObjectId("u9"), "other"))

    def test_a_name_can_be_used_in_another_schema(self) -> None:
        state = self.STATE.with_item(table("u9", "t", STAGING))
        state = state.with_schema(Schema(ObjectId("u22"), OTHER_DB.id, "staging"))
        assert user_items(state) == {"u4", "u5", "u9"}

    def test_ids_are_never_reused(self) -> None:
        first, state = self.STATE.new_id()
        second, state = state.new_id()
        assert (first, second, state.next_id) == ("u100", "u101", 102)


def test_builtin_names_and_ids_are_unique() -> None:
    assert len({t.id for t in builtin.TABLES} | {s.id for s in builtin.SCHEMAS}) == len(builtin.TABLES) + len(
        builtin.SCHEMAS
    )
    assert len({(t.schema_id, t.name) for t in builtin.TABLES}) == len(builtin.TABLES)
    for t in builtin.TABLES:
        assert len({c.name for c in t.columns}) == len(t.columns)
