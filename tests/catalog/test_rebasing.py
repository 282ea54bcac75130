"""`rebased`: the changes of two transactions at the same time, compared with one transaction after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import builtin
from catalog.acls import AclItem
from catalog.drops import InUse, without_item, without_schema
from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema, temporary_schema_name
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.objects.types import EnumType
from catalog.objects.views import View
from catalog.rebasing import CHARS_MAX, rebased
from catalog.roles import MATERIALIZE, Membership, MembershipKey, Privilege, Role
from catalog.state import CatalogState, NameTaken

DB = Database(ObjectId("u1"), "materialize")
PUBLIC, STAGING = Schema(ObjectId("u2"), DB.id, "public"), Schema(ObjectId("u3"), DB.id, "staging")
SESSION = Schema(ObjectId("u4"), DB.id, temporary_schema_name(7))
INT = Column("a", "int4")
T, U = Table(ObjectId("u10"), PUBLIC.id, "t", (INT,)), Table(ObjectId("u11"), PUBLIC.id, "u", (INT,))
V = View(ObjectId("u12"), PUBLIC.id, "v", (INT,), 'SELECT "u10"."a" FROM "u10"', frozenset({T.id}))
W = Table(ObjectId("u13"), STAGING.id, "t", (INT,))
TEMPORARY = Table(ObjectId("u14"), SESSION.id, "mine", (INT,))
MOOD = EnumType(ObjectId("u15"), PUBLIC.id, "mood", ("sad", "happy"), ("1", "2"), ObjectId("u16"))
ALICE, BOB = Role(ObjectId("u20"), "alice"), Role(ObjectId("u21"), "bob")
BASE = CatalogState(
    databases={DB.id: DB},
    schemas={s.id: s for s in (*builtin.SCHEMAS, PUBLIC, STAGING, SESSION)},
    items={i.id: i for i in (*builtin.TABLES, T, U, V, W, TEMPORARY, MOOD)},
    next_id=30,
    roles={r.id: r for r in (MATERIALIZE, ALICE, BOB)},
)
Change = Callable[[CatalogState], CatalogState]


def table(number: int, name: str, schema: Schema = PUBLIC, type: str = "int4") -> Change:
    return lambda state: state.with_item(Table(ObjectId(f"u{number}"), schema.id, name, (Column("a", type),)))


def keyed(number: int, name: str, key: str) -> Change:
    keys = (Key(0, key, ("a",), is_primary=True),)
    return lambda state: state.with_item(Table(ObjectId(f"u{number}"), PUBLIC.id, name, (INT,), keys=keys))


def view(number: int, name: str, on: ObjectId) -> Change:
    def create(state: CatalogState) -> CatalogState:
        used = state.items[on]
        query = f'SELECT "{on}"."a" FROM "{on}"'
        return state.with_item(View(ObjectId(f"u{number}"), used.schema_id, name, (INT,), query, frozenset({on})))

    return create


def index(number: int, name: str, on: ObjectId) -> Change:
    return lambda state: state.with_item(
        Index(ObjectId(f"u{number}"), state.items[on].schema_id, name, on=on, keys=("a",))
    )


def sink(number: int, name: str) -> Change:
    return lambda state: state.with_item(
        Sink(ObjectId(f"u{number}"), PUBLIC.id, name, on=T.id, system="file", options={"path": "/x"}, format=None)
    )


def rename(id: ObjectId, name: str) -> Change:
    return lambda state: state.with_item(replace(state.items[id], name=name))


def add_column(id: ObjectId, name: str) -> Change:
    def add(state: CatalogState) -> CatalogState:
        item = state.items[id]
        assert isinstance(item, Table)
        return state.with_item(replace(item, columns=(*item.columns, Column(name, "int4"))))

    return add


def drop(id: ObjectId) -> Change:
    return lambda state: without_item(state, state.items[id].id, cascade=True)


def drop_schema(id: ObjectId) -> Change:
    return lambda state: without_schema(state, state.schemas[id].id, cascade=True)


def drop_role(role: Role) -> Change:
    return lambda state: state.without_roles({state.roles[role.id].id})


def grant(id: ObjectId, role: Role) -> Change:
    item = AclItem(role.id, MATERIALIZE.id, frozenset({Privilege.SELECT}))
    return lambda state: state.with_acls({id: (*state.acl(state.object(id).id), item)})


def comment(id: ObjectId, text: str) -> Change:
    return lambda state: state.with_comment(state.items[id].id, 0, text)


def own(id: ObjectId, role: Role) -> Change:
    return lambda state: state.with_owner(state.items[id].id, state.roles[role.id].id)


def schema(number: int, name: str) -> Change:
    return lambda state: state.with_schema(Schema(ObjectId(f"u{number}"), DB.id, name))


def member(role: Role, of: Role) -> Change:
    key = MembershipKey(of.id, role.id, MATERIALIZE.id)
    return lambda state: state.with_memberships({**state.memberships, key: Membership(True, True, True)})


def committed(state: CatalogState, change: Change) -> CatalogState:
    """The state after a statement of the superuser."""
    return replace(change(state).settled(state, MATERIALIZE.id), version=BASE.version + 1)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        pytest.param(table(40, "x"), table(50, "y"), id="two tables"),
        pytest.param(table(40, "x"), table(50, "x", STAGING), id="one name in two schemas"),
        pytest.param(view(40, "x", T.id), view(50, "y", T.id), id="two views over one table"),
        pytest.param(index(40, "x", T.id), index(50, "y", T.id), id="two indexes on one table"),
        pytest.param(add_column(T.id, "b"), add_column(U.id, "b"), id="two altered tables"),
        pytest.param(drop(T.id), table(50, "x"), id="a dropped table and a new one"),
        pytest.param(view(40, "x", T.id), grant(T.id, BOB), id="a view over a table and privileges on the table"),
        pytest.param(table(40, "x"), grant(PUBLIC.id, BOB), id="a table in a schema and privileges on the schema"),
        pytest.param(grant(T.id, ALICE), grant(U.id, ALICE), id="privileges on two tables"),
        pytest.param(schema(40, "x"), table(50, "x"), id="a schema and a table"),
        pytest.param(member(ALICE, BOB), table(50, "x"), id="a membership and a table"),
        pytest.param(comment(T.id, "mine"), comment(U.id, "theirs"), id="two comments"),
        pytest.param(table(40, "x"), drop_schema(SESSION.id), id="a table and the end of a session"),
    ],
)
def test_changes_of_different_objects_are_both_made(mine: Change, theirs: Change) -> None:
    after, current = committed(BASE, mine), committed(BASE, theirs)
    found = rebased(BASE, after, current)
    assert found is not None
    assert found == replace(committed(current, mine), version=current.version + 1)


def test_changes_of_temporary_objects_end_with_their_session() -> None:
    """DROP OWNED and REASSIGN OWNED change them in other sessions."""
    current = committed(BASE, drop_schema(SESSION.id))
    found = rebased(BASE, committed(BASE, own(TEMPORARY.id, BOB)), current)
    assert found == replace(current, version=current.version + 1)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        pytest.param(table(40, "x"), table(50, "x"), id="one name"),
        pytest.param(keyed(40, "x", "same"), keyed(50, "y", "same"), id="one name of keys"),
        pytest.param(keyed(40, "x", "same"), table(50, "same"), id="one name of a key and of a table"),
        pytest.param(schema(40, "x"), schema(50, "x"), id="one name of schemas"),
        pytest.param(rename(T.id, "x"), table(50, "x"), id="a name given to another table"),
        pytest.param(add_column(T.id, "b"), add_column(T.id, "c"), id="one table"),
        pytest.param(drop(T.id), view(50, "x", T.id), id="a view over a dropped table"),
        pytest.param(drop(T.id), grant(T.id, BOB), id="privileges on a dropped table"),
        pytest.param(drop(T.id), comment(T.id, "theirs"), id="a comment on a dropped table"),
        pytest.param(drop(V.id), view(50, "x", V.id), id="a view over a dropped view"),
        pytest.param(add_column(T.id, "b"), view(50, "x", T.id), id="a view over an altered table"),
        pytest.param(add_column(T.id, "b"), view(50, "x", V.id), id="a view over a view over an altered table"),
        pytest.param(add_column(T.id, "b"), grant(T.id, BOB), id="privileges on an altered table"),
        pytest.param(drop_schema(STAGING.id), table(50, "x", STAGING), id="a table in a dropped schema"),
        pytest.param(rename(MOOD.id, "x"), table(50, "y", type='enum ["u15","sad","happy"]'), id="a column of a type"),
        pytest.param(drop_role(BOB), grant(T.id, BOB), id="privileges of a dropped role"),
        pytest.param(drop_role(BOB), own(T.id, BOB), id="a table of a dropped role"),
        pytest.param(member(ALICE, BOB), member(BOB, ALICE), id="memberships in a circle"),
        pytest.param(sink(40, "x"), sink(50, "y"), id="two sinks into one file"),
    ],
)
def test_changes_that_concern_each_other_conflict(mine: Change, theirs: Change) -> None:
    after, current = committed(BASE, mine), committed(BASE, theirs)
    assert rebased(BASE, after, current) is None
    assert rebased(BASE, current, after) is None


@dataclass(frozen=True)
class Step:
    """A change of one of the two transactions. `number`: of the object that it creates."""

    kind: str
    target: int
    name: str

    def change(self, ids: list[ObjectId], number: int) -> Change:
        id = ids[self.target % len(ids)]
        role = (ALICE, BOB)[self.target % 2]
        match self.kind:
            case "table":
                return table(number, self.name, (PUBLIC, STAGING)[self.target % 2])
            case "view":
                return view(number, self.name, id)
            case "index":
                return index(number, self.name, id)
            case "schema":
                return schema(number, self.name)
            case "rename":
                return rename(id, self.name)
            case "column":
                return add_column(id, self.name)
            case "drop":
                return drop(id)
            case "drop schema":
                return drop_schema((PUBLIC.id, STAGING.id)[self.target % 2])
            case "grant":
                return grant(id, role)
            case "comment":
                return comment(id, self.name)
            case "owner":
                return own(id, role)
            case _:
                return drop_role(role)


KINDS = (
    *("table", "view", "index", "schema", "rename", "column"),
    *("drop", "drop schema", "grant", "comment", "owner", "drop role"),
)
TRANSACTIONS = st.lists(
    st.builds(Step, st.sampled_from(KINDS), st.integers(0, 9), st.sampled_from(("t", "u", "x", "y"))),
    min_size=1,
    max_size=4,
)


def performed(steps: list[Step], first: int) -> tuple[CatalogState, list[Change]]:
    """The state after the steps on `BASE`, and those of them that were possible."""
    state, done = BASE, []
    for number, step in enumerate(steps, first):
        ids = [T.id, U.id, V.id, W.id, *(id for n in range(first, number) if (id := ObjectId(f"u{n}")) in state.items)]
        change = step.change(ids, number)
        try:
            state = committed(state, change)
        except (NameTaken, InUse, KeyError, AssertionError):
            continue
        done.append(change)
    return state, done


def in_turn(state: CatalogState, changes: list[Change]) -> CatalogState | None:
    """The state after the changes; None if one of them is not possible."""
    try:
        for change in changes:
            state = committed(state, change)
    except (NameTaken, InUse, KeyError, AssertionError):
        return None
    return state


@given(TRANSACTIONS, TRANSACTIONS)
def test_both_changes_equal_one_after_the_other(mine: list[Step], theirs: list[Step]) -> None:
    """In the order of the commits. If the earlier one ends what the later one left as it was, in the other order."""
    (after, my_changes), (current, their_changes) = performed(mine, 40), performed(theirs, 50)
    found = rebased(BASE, after, current)
    if found is not None:
        orders = (current, my_changes), (after, their_changes)
        expected = [state for first, changes in orders if (state := in_turn(first, changes)) is not None]
        assert found in [replace(state, version=found.version, next_id=found.next_id) for state in expected]


def test_the_search_for_uses_is_bounded() -> None:
    long = "SELECT " + "1 + " * (CHARS_MAX // 4) + "1"
    item = View(ObjectId("u40"), PUBLIC.id, "x", (INT,), long, frozenset())
    after, current = committed(BASE, lambda state: state.with_item(item)), committed(BASE, table(50, "y"))
    assert rebased(BASE, after, current) is None


def test_each_id_is_given_out_once() -> None:
    (first, mine), (second, theirs) = BASE.new_id(), BASE.new_id()
    assert (first, second) == ("u30", "u31")
    assert mine.new_id()[0] == "u32"
    assert (theirs.next_id, mine.next_id) == (32, 31)
