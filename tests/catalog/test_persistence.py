"""The saved state equals the loaded state, for any sequence of changes of the catalog."""

from __future__ import annotations

import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import builtin, persistence
from catalog.acls import Acl, AclItem
from catalog.drops import without_item, without_schema
from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Check, Column
from catalog.objects.connections import Connection
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.relations import Relation
from catalog.objects.secrets import NamedSecret, Secret
from catalog.objects.sequences import SEQUENCE_COLUMNS, Sequence
from catalog.objects.sources import Source, SourceTable, Subsource
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from catalog.roles import MATERIALIZE, PUBLIC, DefaultAclKey, Membership, MembershipKey, Privilege, Role
from catalog.source_definition import Encoding, Envelope, Format, ForTables, Include
from catalog.state import CatalogState, NameTaken
from catalog.store import Store
from tests.examples import examples

# Characters that SQLite, JSON or an identifier might treat specially. As in PostgreSQL, no NUL and no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
names = st.sampled_from(["a", "A", "t", "v", 'quo"ted']) | texts
columns = st.lists(
    st.builds(Column, names, st.sampled_from(["int4", "numeric(10,2)", "text[]"]), st.booleans(), st.none() | texts),
    max_size=4,
).map(tuple)

table_columns = st.lists(
    st.builds(
        Column,
        names,
        st.sampled_from(["int4", "timestamp(3)"]),
        st.booleans(),
        st.none() | texts,
        identity=st.sampled_from(["", "a", "d"]),
        sequences=st.lists(st.sampled_from([ObjectId("u7"), ObjectId("u8")]), max_size=2).map(tuple),
        generated=texts,
    ),
    max_size=4,
).map(tuple)
checks = st.lists(st.builds(Check, names, texts, st.booleans(), st.none() | texts), max_size=2).map(tuple)
sequence_options = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["int2", "int8"]),
        **dict.fromkeys(
            ("start", "increment", "minimum", "maximum", "cache", "first"), st.integers(-(2**63), 2**63 - 1)
        ),
        "cycle": st.booleans(),
        "owner_column": st.none() | names,
        "is_identity": st.booleans(),
        "generation": st.integers(0, 5),
    }
)

keys = st.lists(
    st.builds(
        Key,
        st.integers(0, 31),
        names,
        st.lists(names, max_size=3).map(tuple),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.none() | texts,
    ),
    max_size=2,
).map(tuple)

retained = st.none() | st.integers(0, 2**40)
index_options = st.tuples(
    st.sampled_from(("btree", "hash")),
    st.lists(st.sampled_from(("a", '"B c"')), max_size=2).map(tuple),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.lists(st.sampled_from(("", "text_pattern_ops")), max_size=3).map(tuple),
)


encodings = st.builds(
    Encoding,
    st.sampled_from(["avro", "csv"]),
    st.none() | st.just(ObjectId("u5")),
    st.none() | texts,
    st.dictionaries(names, texts, max_size=2),
)
formats = st.none() | st.builds(
    Format,
    st.none() | encodings,
    st.none() | encodings,
    st.lists(st.builds(Include, st.sampled_from(["key", "header"]), st.none() | names), max_size=2).map(tuple),
    st.sampled_from(Envelope),
    st.none() | names,
)
references = st.lists(st.tuples(names, st.none() | names), max_size=2).map(tuple)


@st.composite
def source_items(draw: st.DrawFn, kind: str, id: ObjectId, schema: ObjectId, name: str, state: CatalogState) -> Item:
    """A secret, a connection, a source or an output of one."""
    options = draw(st.dictionaries(names, texts, max_size=2))
    used = draw(st.sampled_from(sorted(state.items)))
    if kind == "secret":
        return NamedSecret(id, schema, name, Secret(draw(texts)))
    if kind == "connection":
        return Connection(id, schema, name, "kafka", options, {"password": used})
    output: dict[str, Any] = {
        "columns": draw(columns),
        "reference": draw(names),
        "key": tuple(draw(st.lists(names, max_size=2))),
        "output_names": tuple(draw(st.lists(names, max_size=2))),
        "retain_ms": draw(retained),
    }
    if kind == "subsource":
        return Subsource(id, schema, name, source=used, **output)
    if kind == "source table":
        return SourceTable(id, schema, name, source=used, format=draw(formats), **output)
    tables = draw(st.builds(ForTables, st.booleans(), st.lists(names, max_size=2).map(tuple), references))
    given = tuple(Column(c.name, c.type, c.nullable) for c in draw(columns))
    return Source(
        id,
        schema,
        name,
        system="kafka",
        connection=draw(st.none() | st.just(used)),
        options=options,
        format=draw(formats),
        tables=tables,
        given=given,
        identity=draw(names),
        **output,
    )


def acls(state: CatalogState) -> st.SearchStrategy[Acl]:
    """Lists of privileges. Grant options are a subset of the privileges."""
    roles = st.sampled_from(sorted(state.roles))
    granted = st.frozensets(st.sampled_from(list(Privilege)), min_size=1)
    items = st.builds(AclItem, st.just(PUBLIC) | roles, roles, granted)
    optional = st.builds(lambda item: replace(item, grantable=item.privileges), items)
    return st.lists(items | optional, max_size=3, unique_by=lambda i: (i.grantee, i.grantor)).map(tuple)


@st.composite
def next_states(draw: st.DrawFn, state: CatalogState) -> CatalogState:
    """`state` after one change of a random kind, or `state` itself if the name is taken."""
    id, state = state.new_id()
    own_schemas = [s for s in state.schemas.values() if s.database_id is not None]
    own_items = [i for i in state.items.values() if i.id.startswith("u")]
    relations = [i for i in state.items.values() if not isinstance(i, Index | Hold)]
    kinds = ["database", "schema", "settings", "role", "memberships", "owner", "acl", "default acl"]
    kinds = kinds if state.databases else ["database"]
    kinds += ["table", "view", "materialized view", "index", "sequence", "drop schema"] if own_schemas else []
    kinds += ["secret", "connection", "source", "subsource", "source table"] if own_schemas else []
    kinds += ["rename", "drop", "comment", "hold"] if own_items else []
    made_roles = sorted(state.roles.keys() - {MATERIALIZE.id})
    kinds += ["drop role"] if made_roles else []
    name = draw(names)
    try:
        match draw(st.sampled_from(kinds)):
            case "database":
                return state.with_database(Database(id, name))
            case "schema":
                return state.with_schema(Schema(id, draw(st.sampled_from(sorted(state.databases))), name))
            case "settings":
                return state.with_settings(draw(st.dictionaries(names, texts, max_size=2)))
            case "role":
                attributes = draw(st.tuples(*[st.booleans()] * 5))
                return state.with_role(Role(id, name, *attributes))
            case "memberships":
                known = st.sampled_from(sorted(state.roles))
                options = st.builds(Membership, st.booleans(), st.booleans(), st.booleans())
                keys_of_members = st.builds(MembershipKey, known, known, known)
                return state.with_memberships(draw(st.dictionaries(keys_of_members, options, max_size=3)))
            case "owner":
                return state.with_owner(
                    draw(st.sampled_from(sorted(state.databases))), draw(st.sampled_from(sorted(state.roles)))
                )
            case "acl":
                schema_id = draw(st.sampled_from(sorted(state.schemas)))
                columns_acl = draw(st.dictionaries(st.integers(1, 3), acls(state), max_size=2))
                return state.with_acls({schema_id: draw(acls(state))}, {schema_id: columns_acl})
            case "default acl":
                known = st.sampled_from(sorted(state.roles))
                places = st.none() | st.sampled_from(sorted(state.schemas))
                default_keys = st.builds(
                    DefaultAclKey, known, st.sampled_from(sorted(state.databases)), places, st.sampled_from("rSTn")
                )
                return state.with_default_acls(draw(st.dictionaries(default_keys, st.none() | acls(state), max_size=2)))
            case "drop role":
                return state.without_roles({draw(st.sampled_from(made_roles))})
            case "drop schema":
                return without_schema(state, draw(st.sampled_from(own_schemas)).id, cascade=True)
            case "comment":
                item_id = draw(st.sampled_from(own_items)).id
                return state.with_comment(item_id, draw(st.integers(0, 3)), draw(st.none() | texts))
            case "hold":
                held = draw(st.lists(st.sampled_from([i.id for i in own_items]), min_size=1, max_size=3, unique=True))
                schema_id = draw(st.sampled_from(own_schemas)).id
                return state.with_item(Hold(id, schema_id, name, tuple(held), draw(st.integers(1, 2**40))))
            case "rename":
                return state.with_item(replace(draw(st.sampled_from(own_items)), name=name))
            case "drop":
                return without_item(state, draw(st.sampled_from(own_items)).id, cascade=True)
            case "secret" | "connection" | "source" | "subsource" | "source table" as kind:
                return state.with_item(draw(source_items(kind, id, draw(st.sampled_from(own_schemas)).id, name, state)))
            case kind:
                schema_id = draw(st.sampled_from(own_schemas)).id
                used = draw(st.frozensets(st.sampled_from([r.id for r in relations]), max_size=3))
                item: Item
                if kind == "table":
                    item = Table(
                        id, schema_id, name, draw(table_columns), draw(keys), draw(checks), retain_ms=draw(retained)
                    )
                elif kind == "sequence":
                    owner = draw(st.none() | st.sampled_from([r.id for r in relations]))
                    options = draw(sequence_options)
                    item = Sequence(id, schema_id, name, SEQUENCE_COLUMNS, owner_table=owner, **options)
                elif kind == "view":
                    item = View(id, schema_id, name, draw(columns), draw(texts), used)
                elif kind == "materialized view":
                    item = MaterializedView(
                        id, schema_id, name, draw(columns), draw(texts), used, retain_ms=draw(retained)
                    )
                else:
                    on = draw(st.sampled_from(relations)).id
                    index_keys = draw(st.lists(texts, max_size=3).map(tuple))
                    unique = (draw(st.booleans()), True)
                    shown = draw(index_options)
                    item = Index(id, schema_id, name, on, index_keys, *unique, *shown, retain_ms=draw(retained))
                return state.with_item(item)
    except NameTaken:
        return state


@examples(50)
@given(st.data())
def test_the_saved_state_is_loaded(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        old = persistence.load(store)
        for _ in range(data.draw(st.integers(1, 3))):
            new = old
            for _ in range(data.draw(st.integers(1, 5))):
                new = data.draw(next_states(new))
            new = replace(new, version=new.version + 1)
            store.transact(lambda tx, old=old, new=new: persistence.save(tx, old, new))  # type: ignore[misc]
            assert persistence.load(store) == new
            old = new
        ((items, owned),) = store.read("SELECT count(*), (SELECT count(*) FROM columns) FROM items")
        assert items == len(old.items) - len(builtin.TABLES)
        relations = (relation for relation in old.items_of(Relation) if relation not in builtin.TABLES)
        assert owned == sum(len(relation.columns) for relation in relations)
        store.close()


def test_a_new_store_has_the_default_database(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = persistence.load(store)
    assert [d.name for d in state.databases.values()] == ["materialize"]
    (database,) = state.databases.values()
    assert state.schema_named(database.id, "public") is not None
    assert set(state.items.values()) == set(builtin.TABLES)
    id, _ = state.new_id()
    assert id not in {*state.databases, *state.schemas, *state.items}
    store.close()


def test_a_comment_is_saved_without_the_others(tmp_path: Path) -> None:
    """All commits wait while the catalog is written."""
    store = Store(tmp_path)
    empty = persistence.load(store)
    many = empty
    for number in range(100):
        many = many.with_comment(ObjectId(f"u{number}"), 0, "text")
    store.transact(lambda tx: persistence.save(tx, empty, many))

    def changes(new: CatalogState) -> int:
        def work(tx: sqlite3.Connection) -> int:
            before = tx.total_changes
            persistence.save(tx, many, many)
            unchanged = tx.total_changes - before
            persistence.save(tx, many, new)
            return tx.total_changes - before - 2 * unchanged

        found: int = store.transact(work)
        store.transact(lambda tx: persistence.save(tx, new, many))
        return found

    assert changes(many.with_comment(ObjectId("u5"), 0, "other")) == 1
    assert changes(many.with_comment(ObjectId("u5"), 0, None)) == 1
    assert changes(many.with_comment(ObjectId("u5"), 1, "column")) == 1
    assert persistence.load(store).comments == many.comments
    store.close()


def test_builtin_tables_are_not_saved(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = persistence.load(store)
    renamed = state.with_item(replace(builtin.MZ_OBJECTS, id=ObjectId("s99"), name="other"))
    with pytest.raises(TypeError, match="built-in"):
        store.transact(lambda tx: persistence.save(tx, state, renamed))
    assert persistence.load(store) == state
    store.close()
