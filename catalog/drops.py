"""DROP: the catalog without some objects, and without what depends on them if CASCADE is given."""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from catalog.ids import ObjectId, types_in
from catalog.objects.catalog_object import Item
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.references import references_to, without_references
from catalog.roles import MATERIALIZE
from catalog.state import CatalogError, CatalogState


class InUse(CatalogError):
    """Other objects depend on the object. `dependents` has the kind and the name of each, and of what it uses.

    `drops_columns`: some are columns, which CASCADE does not drop.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        dependents: tuple[tuple[tuple[str, str], tuple[str, str]], ...],
        *,
        drops_columns: bool = False,
    ) -> None:
        super().__init__(kind, name)
        self.dependents = dependents
        self.drops_columns = drops_columns


def without_item(state: CatalogState, id: ObjectId, *, cascade: bool = False) -> CatalogState:
    """Drops an item and its parts. Other dependents are dropped with `cascade`, otherwise raises InUse.

    A column whose default calls a dropped sequence loses the default. Other tables lose the foreign keys that
    reference a dropped table or unique index.
    """
    return _without(state, (id,), cascade=cascade)


def without_items(state: CatalogState, ids: Iterable[ObjectId]) -> CatalogState:
    """As `without_item` of each item with `cascade`, in time linear in the size of the catalog.

    Types are dropped after the others, so that a column of a type is no obstacle if its table is dropped.
    """
    items = [state.items[id] for id in ids]
    state = _without(state, tuple(i.id for i in items if not isinstance(i, EnumType | Domain)), cascade=True)
    return _without(state, tuple(i.id for i in items if i.id in state.items), cascade=True)


def without_schema(state: CatalogState, id: ObjectId, *, cascade: bool = False) -> CatalogState:
    """Drops a schema. InUse if it is not empty, unless `cascade`, which also drops dependents in other schemas."""
    schema = state.schemas[id]
    inside = list(state.items_in(id))
    if inside and not cascade:
        raise InUse("schema", schema.name, tuple(((i.kind, i.name), ("schema", schema.name)) for i in inside))
    state = without_items(state, [item.id for item in inside])
    state = replace(state, schemas={k: v for k, v in state.schemas.items() if k != id})
    return _without_comments(state, {id})


def without_temporary(state: CatalogState, ids: Iterable[ObjectId]) -> CatalogState:
    """Drops the schemas of temporary objects of ended sessions, and what depends on them. The version is the next."""
    after = state
    for id in ids:
        after = without_schema(after, id, cascade=True)
    return replace(after.settled(state, MATERIALIZE.id), version=state.version + 1)


def without_database(state: CatalogState, id: ObjectId, *, contents: bool, cascade: bool) -> CatalogState:
    """Drops a database and its schemas.

    InUse if one of its schemas contains items, unless `contents`, and if items elsewhere use them, unless `cascade`.
    """
    database = state.databases[id]
    inside = [s for s in state.schemas.values() if s.database_id == id]
    items = [i for s in inside for i in state.items_in(s.id)]
    if items and not contents:
        uses = tuple(((i.kind, i.name), ("database", database.name)) for i in items)
        raise InUse("database", database.name, uses)
    if not cascade:
        here = {item.id for item in items}
        outside = [_use(user, used) for user, used in state.uses_of(*here) if user.id not in here and not user.part_of]
        if outside:
            raise InUse("database", database.name, tuple(outside))
    gone = {id, *(schema.id for schema in inside)}
    state = without_items(state, [item.id for item in items])
    state = replace(
        state,
        schemas={k: v for k, v in state.schemas.items() if k not in gone},
        databases={k: v for k, v in state.databases.items() if k != id},
    )
    return _without_comments(state, gone)


def _without(state: CatalogState, ids: tuple[ObjectId, ...], *, cascade: bool) -> CatalogState:
    """As `without_item`. Several items need `cascade`."""
    uses = state.uses_of(*ids)
    types = [item for id in ids if isinstance(item := state.items[id], EnumType | Domain)]
    used = _columns_of_types(state, {type.id for type in types})
    for type in types:
        if type.id in used:
            # PostgreSQL's CASCADE would drop the columns
            others = [
                _use(user, through)
                for user, through in state.uses_of(type.id)
                if user.part_of is None and not isinstance(user, Table)
            ]
            of_type = [(column, (type.kind, type.name)) for column in used[type.id]]
            raise InUse(type.kind, type.name, (*of_type, *others), drops_columns=True)
    gone = {*ids, *(user.id for user, _ in uses)}
    callers = _callers(state, [key for key in gone if isinstance(state.items[key], Sequence)])
    defaults = [(table, column) for table, column in callers if table.id not in gone]
    references = [(table, key) for table, key in references_to(state, gone) if table.id not in gone]
    if not cascade:
        (item,) = (state.items[id] for id in ids)
        on = (item.kind, item.name)
        blocking = [
            *(_use(user, used) for user, used in uses if user.part_of is None),
            *(((f"default value for column {column} of", f"table {table.name}"), on) for table, column in defaults),
            *((("constraint", f"{key.name} on table {table.name}"), on) for table, key in references),
        ]
        if blocking:
            raise InUse(*on, tuple(blocking))
    items = {k: v for k, v in without_references(state, references).items.items() if k not in gone}
    for table, _ in defaults:
        columns = (c if gone.isdisjoint(c.sequences) else c.without_default() for c in table.columns)
        left = items[table.id]
        assert isinstance(left, Table)
        items[table.id] = replace(left, columns=tuple(columns))
    return _without_comments(replace(state, items=items), gone)


def _columns_of_types(state: CatalogState, ids: AbstractSet[ObjectId]) -> dict[ObjectId, list[tuple[str, str]]]:
    """The columns of tables that have a type, or that use it in a default, each as (column c of table, t)."""
    found: dict[ObjectId, list[tuple[str, str]]] = {}
    for table in state.items_of(Table) if ids else ():
        for column in table.columns:
            named = {*types_in(f"{column.type} {column.default} {column.generated}")}
            if column.domain is not None:
                named.add(column.domain.id)
            for id in named & ids:
                found.setdefault(id, []).append((f"column {column.name} of table", table.name))
        for check in table.checks:
            for id in ids & {*types_in(check.expression)}:
                found.setdefault(id, []).append((f"constraint {check.name} on table", table.name))
    return found


def _callers(state: CatalogState, sequences: Iterable[ObjectId]) -> list[tuple[Table, str]]:
    """The tables and the names of their columns whose defaults call one of the sequences."""
    called = frozenset(sequences)
    if not called:
        return []
    return [(t, c.name) for t in state.items_of(Table) for c in t.columns if not called.isdisjoint(c.sequences)]


def _without_comments(state: CatalogState, gone: Container[ObjectId]) -> CatalogState:
    return replace(state, comments={key: text for key, text in state.comments.items() if key[0] not in gone})


def _use(user: Item, used: Item) -> tuple[tuple[str, str], tuple[str, str]]:
    """A dependent of InUse."""
    return (user.kind, user.name), (used.kind, used.name)
